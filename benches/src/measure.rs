//! Measuring services beside each other.
//!
//! A call is made as users make it: inside a tokio task, `ready` and then `call`, so that tokio's cooperative budget
//! works as it does there. The rows take turns, one short run each, many times over, and of each row the least counts:
//! noise only adds, and what slows the machine down for a while hits all alike.

use std::{
    fmt,
    future::poll_fn,
    hint::black_box,
    pin::Pin,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use pin_project_lite::pin_project;
use tokio::runtime::Runtime;
use tower::Service;

/// How long one run of one row takes.
const RUN: Duration = Duration::from_millis(4);

/// How often each row has its turn.
const ROUNDS: usize = 40;

/// Calls whose allocations and yields are counted.
const COUNTED: u64 = 10_000;

/// What one service costs.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was measured.
    pub name: &'static str,
    /// Nanoseconds of a whole call, one task.
    pub ns1: f64,
    /// The same with two OS threads, each with its clone of the service.
    pub ns2: f64,
    /// Allocations a call.
    pub allocs: f64,
    /// How often a call made its task yield.
    pub yields: f64,
}

/// Something to measure.
pub struct Subject {
    name: &'static str,
    timed: Box<dyn Fn(u64) -> Duration>,
    together: Box<dyn Fn(u64) -> Together>,
    counted: Box<dyn Fn() -> (f64, f64)>,
}

impl Subject {
    /// A service. It and its clones share what the layers share.
    pub fn service<S>(name: &'static str, service: S) -> Self
    where
        S: Service<u64> + Clone + Send + 'static,
    {
        let (alone, both) = (service.clone(), service.clone());
        Self {
            name,
            timed: Box::new(move |calls| timed(alone.clone(), calls).took()),
            together: Box::new(move |calls| together([both.clone(), both.clone()], calls)),
            counted: Box::new(move || counted(service.clone())),
        }
    }
}

impl Subject {
    /// What is measured.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Measures all of them in turns.
#[must_use]
pub fn measure_all(subjects: &[Subject]) -> Vec<Row> {
    let mut turns: Vec<Turns<'_>> = subjects.iter().map(Turns::new).collect();
    for _ in 0..ROUNDS {
        turns.iter_mut().for_each(Turns::take);
    }
    turns.into_iter().map(Turns::row).collect()
}

/// The runs of one subject so far.
struct Turns<'a> {
    subject: &'a Subject,
    /// Calls in a run: alone, and with two threads.
    calls: (u64, u64),
    alone: f64,
    together: f64,
    /// The least of the runs in which one thread waited too long for the other; of use only if there is no better.
    apart: f64,
}

impl<'a> Turns<'a> {
    fn new(subject: &'a Subject) -> Self {
        // As many calls as fill a run, found out by running.
        let fill = |took: Duration| {
            let each = took.as_nanos().max(1) as f64 / COUNTED as f64;
            (RUN.as_nanos() as f64 / each).max(100.0) as u64
        };
        let calls = (fill((subject.timed)(COUNTED)), fill((subject.together)(COUNTED).slower));
        Self { subject, calls, alone: f64::INFINITY, together: f64::INFINITY, apart: f64::INFINITY }
    }

    fn take(&mut self) {
        let each = |took: Duration, calls: u64| took.as_nanos() as f64 / calls as f64;
        self.alone = self.alone.min(each((self.subject.timed)(self.calls.0), self.calls.0));
        let both = (self.subject.together)(self.calls.1);
        let least = if both.overlap >= 0.75 { &mut self.together } else { &mut self.apart };
        *least = least.min(each(both.slower, self.calls.1));
    }

    fn row(self) -> Row {
        let (allocs, yields) = (self.subject.counted)();
        let ns2 = if self.together.is_finite() { self.together } else { self.apart };
        Row { name: self.subject.name, ns1: self.alone, ns2, allocs, yields }
    }
}

async fn run<S: Service<u64>>(service: &mut S, calls: u64) {
    for request in 1..=calls {
        // A service that fails is an answer too.
        if poll_fn(|cx| service.poll_ready(cx)).await.is_ok() {
            black_box(&service.call(black_box(request)).await);
        }
    }
}

fn runtime() -> Runtime {
    #[allow(clippy::expect_used, reason = "a bench that cannot make a runtime has nothing to say")]
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// From when to when a thread worked.
#[derive(Clone, Copy)]
struct Span {
    start: Instant,
    end: Instant,
}

impl Span {
    fn took(self) -> Duration {
        self.end - self.start
    }
}

#[allow(clippy::disallowed_methods, reason = "a bench measures the machine's own time")]
fn now() -> Instant {
    Instant::now()
}

fn timed<S: Service<u64>>(mut service: S, calls: u64) -> Span {
    runtime().block_on(async {
        let start = now();
        run(&mut service, calls).await;
        Span { start, end: now() }
    })
}

/// Allocations and yields of a call, once everything is warm.
fn counted<S: Service<u64>>(mut service: S) -> (f64, f64) {
    let runtime = runtime();
    runtime.block_on(run(&mut service, COUNTED));
    let mut yields = 0;
    let allocated = allocation_counter::measure(|| {
        runtime.block_on(Yields { task: run(&mut service, COUNTED), yields: &mut yields });
    });
    (allocated.count_total as f64 / COUNTED as f64, f64::from(yields) / COUNTED as f64)
}

pin_project! {
    /// Counts how often a task yields.
    struct Yields<'a, F> {
        #[pin]
        task: F,
        yields: &'a mut u32,
    }
}

impl<F: Future> Future for Yields<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let polled = this.task.poll(cx);
        **this.yields += u32::from(polled.is_pending());
        polled
    }
}

/// A run of two threads.
struct Together {
    /// The time of the one that took longer.
    slower: Duration,
    /// For how much of that both were at work. Little, if the machine let one of them wait: such a run shows nothing.
    overlap: f64,
}

/// Two OS threads that spin on one flag, so that they really start together.
fn together<S: Service<u64> + Send>(services: [S; 2], calls: u64) -> Together {
    let (ready, go) = (Barrier::new(2), AtomicBool::new(false));
    let [one, other] = std::thread::scope(|scope| {
        let threads = services.map(|mut service| {
            let (ready, go) = (&ready, &go);
            scope.spawn(move || {
                runtime().block_on(async {
                    run(&mut service, calls / 100).await;
                    if ready.wait().is_leader() {
                        go.store(true, Ordering::Release);
                    }
                    while !go.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                    let start = now();
                    run(&mut service, calls).await;
                    Span { start, end: now() }
                })
            })
        });
        #[allow(clippy::expect_used, reason = "a service that panics cannot be measured")]
        threads.map(|thread| thread.join().expect("the service does not panic"))
    });
    let slower = one.took().max(other.took());
    let both = one.end.min(other.end).saturating_duration_since(one.start.max(other.start));
    Together { slower, overlap: both.as_secs_f64() / slower.as_secs_f64() }
}
