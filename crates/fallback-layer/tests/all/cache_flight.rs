//! One call for all that ask the same at once, on real threads: who follows costs nothing while it waits, and whoever is
//! cancelled wherever takes nobody along.
#![cfg(feature = "cache")]

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use failsoft_core::BoxError;
use fallback_layer::cache::{Cache, CacheLayer, Scope};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tower::{Layer, Service, ServiceExt, service_fn};

type Req = Request<String>;

fn ask(question: usize) -> Req {
    Request::post("/v1/chat/completions").body(format!("{{\"q\":{question}}}")).unwrap()
}

/// The same question, with a number that the cache does not look at.
#[cfg(unix)]
fn numbered(number: usize) -> Req {
    let mut request = ask(0);
    request.headers_mut().insert("x-call", number.into());
    request
}

#[cfg(unix)]
fn number_of(request: &Req) -> usize {
    request.headers()["x-call"].to_str().unwrap().parse().unwrap()
}

fn cache() -> Cache<impl Scope<Req>> {
    let cache = Cache::builder().shared_by_all().keep_unjudged(true);
    // However long a busy machine takes, nobody loses patience.
    cache.patience(Duration::from_secs(86_400)).build().unwrap()
}

/// A body in two pieces, with a wait before each.
struct Pieces(Vec<&'static str>, bool);

impl Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !std::mem::replace(&mut self.1, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.1 = false;
        Poll::Ready(self.0.pop().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))))
    }
}

fn answer() -> Response<Pieces> {
    Response::builder()
        .header("content-type", "application/json")
        .body(Pieces(vec!["}", "{"], false))
        .unwrap()
}

/// Asks and reads to the end.
async fn get<S, B>(service: S, request: Req) -> Bytes
where
    S: Service<Req, Response = Response<B>, Error = BoxError>,
    B: Body<Data = Bytes, Error = BoxError>,
{
    service.oneshot(request).await.unwrap().into_body().collect().await.unwrap().to_bytes()
}

/// Counts how often a future is polled.
async fn counted<F: Future>(polls: Arc<AtomicUsize>, future: F) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        polls.fetch_add(1, Ordering::Relaxed);
        future.as_mut().poll(cx)
    })
    .await
}

/// The time that this thread has computed, and not the time that has passed: no load on the machine makes it longer.
#[cfg(unix)]
fn computed() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}

// P22, P23, G120, G121
#[cfg(unix)]
#[test]
fn followers_of_leaders_that_are_cancelled_compute_nothing_while_they_wait() {
    const FOLLOWERS: usize = 100;
    const LEADERS: usize = 3;
    // Each wait is as long as another thread needs to compute so much, beside which one that spins has its fair share.
    let burn = Duration::from_millis(100);

    let (called, calls) = mpsc::channel();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let model = service_fn({
        let gate = gate.clone();
        move |request: Req| {
            let (called, gate) = (called.clone(), gate.clone());
            async move {
                called.send(number_of(&request)).unwrap();
                gate.acquire().await.unwrap().forget();
                Ok::<_, BoxError>(answer())
            }
        }
    });
    let service = CacheLayer::new(cache()).layer(model);
    let polls: Vec<Arc<AtomicUsize>> = (0..LEADERS + FOLLOWERS).map(|_| Arc::default()).collect();
    let (started, tasks) = mpsc::channel();
    let all = polls.clone();
    let followers = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let before = computed();
            let calls = all.into_iter().enumerate();
            let calls = calls.map(|(number, polls)| counted(polls, get(service.clone(), numbered(number))));
            let tasks: Vec<_> = calls.map(tokio::spawn).collect();
            started
                .send(tasks.iter().map(tokio::task::JoinHandle::abort_handle).collect::<Vec<_>>())
                .unwrap();
            let mut answers = 0;
            for task in tasks {
                match task.await {
                    Ok(answer) => answers += usize::from(answer == "{}"),
                    Err(error) => assert!(error.is_cancelled(), "{error}"),
                }
            }
            (answers, computed() - before)
        })
    });
    let tasks = tasks.recv().unwrap();
    let mut led = Vec::new();
    while led.len() <= LEADERS {
        led.push(calls.recv_timeout(Duration::from_secs(600)).expect("somebody leads"));
        let start = computed();
        while computed() - start < burn {
            std::hint::spin_loop();
        }
        if led.len() <= LEADERS {
            tasks[led[led.len() - 1]].abort();
        }
    }
    gate.add_permits(1);
    let (answers, computed) = followers.join().unwrap();
    assert_eq!(answers, FOLLOWERS, "no follower failed");
    assert!(calls.try_recv().is_err(), "one call for each leader");
    assert!(computed < burn, "{computed:?} in {} waits of {burn:?} each", LEADERS + 1);
    for (number, polls) in polls.iter().enumerate().filter(|(number, _)| !led.contains(number)) {
        // When it comes, and when the answer is there.
        assert_eq!(polls.load(Ordering::Relaxed), 2, "{number}");
    }
}

/// SplitMix64.
fn mix(seed: usize) -> usize {
    let mut bits = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from((bits ^ (bits >> 31)) >> 8).unwrap()
}

// P23, G120, G121
#[test]
fn on_many_threads_whoever_is_cancelled_wherever_takes_nobody_along() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 200;
    const EACH: usize = 12;

    let calls = Arc::new(AtomicUsize::new(0));
    let model = service_fn({
        let calls = calls.clone();
        move |_: Req| {
            calls.fetch_add(1, Ordering::Relaxed);
            async {
                tokio::task::yield_now().await;
                Ok::<_, BoxError>(answer())
            }
        }
    });
    let cache = cache();
    let service = CacheLayer::new(cache.clone()).layer(model);
    let (cancelled, start) = (AtomicUsize::new(0), Barrier::new(THREADS));
    let thread = |thread: usize| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        for round in 0..ROUNDS {
            start.wait();
            let one = |call: usize| {
                let seed = mix((thread * ROUNDS + round) * EACH + call);
                let (polls, request) = (seed % 8, get(service.clone(), ask(round)));
                let cancelled = &cancelled;
                async move {
                    // Two of three are cancelled, if they are not done after a few polls.
                    if seed / 8 % 3 == 0 {
                        assert_eq!(request.await, "{}");
                        return;
                    }
                    let (mut request, mut left) = (Box::pin(request), polls);
                    let done = std::future::poll_fn(|cx| {
                        if left == 0 {
                            return Poll::Ready(None);
                        }
                        left -= 1;
                        // Polled again soon, also when nothing has happened.
                        cx.waker().wake_by_ref();
                        request.as_mut().poll(cx).map(Some)
                    });
                    match done.await {
                        Some(answer) => assert_eq!(answer, "{}"),
                        None => drop(cancelled.fetch_add(1, Ordering::Relaxed)),
                    }
                }
            };
            let all = futures_util::future::join_all((0..EACH).map(one));
            runtime
                .block_on(async { tokio::time::timeout(Duration::from_secs(600), all).await })
                .expect("somebody waits for nobody");
        }
    };
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || thread(number));
        }
    });
    let (calls, cancelled) = (calls.load(Ordering::Relaxed), cancelled.load(Ordering::Relaxed));
    assert_eq!(cache.in_flight(), 0);
    assert!(cancelled > ROUNDS, "{cancelled}");
    assert!(calls <= cancelled + ROUNDS, "{calls} calls for {ROUNDS} questions and {cancelled} cancelled");
}
