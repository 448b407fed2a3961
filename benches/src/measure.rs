//! Measuring one service.

use std::{
    future::{Ready, ready},
    hint::black_box,
    pin::pin,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use failsoft_core::BoxError;
use tower::Service;

/// Calls in one run.
const CALLS: u64 = 200_000;

/// Runs, of which the least counts.
const RUNS: usize = 7;

/// A service that is always ready and answers at once. Each `fails_every`th answer is an error; 0 means none.
#[derive(Clone, Debug, Default)]
pub struct Echo {
    calls: u64,
    fails_every: u64,
}

impl Echo {
    /// One that fails one call in `every`.
    #[must_use]
    pub const fn failing(every: u64) -> Self {
        Self { calls: 0, fails_every: every }
    }
}

impl Service<u64> for Echo {
    type Response = u64;
    type Error = BoxError;
    type Future = Ready<Result<u64, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Self::Future {
        self.calls += 1;
        // A unit error in a box allocates nothing.
        let fails = self.fails_every > 0 && request.is_multiple_of(self.fails_every);
        ready(if fails { Err(Box::new(std::fmt::Error)) } else { Ok(request) })
    }
}

/// What one service costs.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was measured.
    pub name: &'static str,
    /// Nanoseconds of a whole call, one thread.
    pub ns1: f64,
    /// The same with two threads, each with its clone of the service.
    pub ns2: f64,
    /// Allocations a call.
    pub allocs: f64,
    /// Pending polls a call.
    pub yields: f64,
}

/// Measures a service.
pub fn measure<S>(name: &'static str, service: &S) -> Row
where
    S: Service<u64, Response = u64> + Clone + Send,
{
    let pending = AtomicUsize::new(0);
    let mut warm = service.clone();
    run(&mut warm, CALLS, &pending);
    pending.store(0, Ordering::Relaxed);
    let allocated = allocation_counter::measure(|| run(&mut warm, 10_000, &pending));
    let yields = pending.load(Ordering::Relaxed) as f64 / 10_000.0;
    let least = |run: &dyn Fn() -> Duration| {
        (0..RUNS).map(|_| run()).min().unwrap_or_default().as_nanos() as f64 / CALLS as f64
    };
    let ns1 = least(&|| timed(&mut service.clone(), &pending));
    let ns2 = least(&|| together(service, &pending));
    Row { name, ns1, ns2, allocs: allocated.count_total as f64 / 10_000.0, yields }
}

fn run<S: Service<u64, Response = u64>>(service: &mut S, calls: u64, pending: &AtomicUsize) {
    let mut cx = Context::from_waker(Waker::noop());
    for request in 1..=calls {
        while service.poll_ready(&mut cx).is_pending() {
            pending.fetch_add(1, Ordering::Relaxed);
        }
        let mut future = pin!(service.call(black_box(request)));
        loop {
            match future.as_mut().poll(&mut cx) {
                Poll::Ready(answer) => break drop(black_box(answer)),
                Poll::Pending => pending.fetch_add(1, Ordering::Relaxed),
            };
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a bench measures the machine's own time")]
fn timed<S: Service<u64, Response = u64>>(service: &mut S, pending: &AtomicUsize) -> Duration {
    let start = std::time::Instant::now();
    run(service, CALLS, pending);
    start.elapsed()
}

/// Two OS threads that spin on one flag, so that they really start together; the slower one counts.
fn together<S>(service: &S, pending: &AtomicUsize) -> Duration
where
    S: Service<u64, Response = u64> + Clone + Send,
{
    let (ready, go) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let threads = [service.clone(), service.clone()].map(|mut service| {
            let (ready, go) = (&ready, &go);
            scope.spawn(move || {
                if ready.wait().is_leader() {
                    go.store(true, Ordering::Release);
                }
                while !go.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                timed(&mut service, pending)
            })
        });
        // A thread that panicked has no time.
        threads.map(|thread| thread.join().unwrap_or_default()).into_iter().max().unwrap_or_default()
    })
}
