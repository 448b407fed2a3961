//! Many that ask the same at once: one leads, and the others follow.

use super::*;

#[tokio::test(start_paused = true)]
async fn ten_thousand_identical_calls_at_once_make_one() {
    let model = Model::new([Answer { after: Duration::from_secs(2), ..Answer::good("{}") }]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    let all = (0..10_000).map(|_| get(&service, ask("{}")));
    let answers = futures_util::future::join_all(all).await;
    assert!(answers.iter().all(|answer| answer == "{}"));
    assert_eq!(model.calls(), 1);
}

#[test]
fn ten_thousand_identical_calls_on_two_threads_make_one() {
    let model = Model::new([Answer::good("{}")]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    let start = std::sync::Barrier::new(2);
    let half = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        start.wait();
        runtime.block_on(async {
            let all: Vec<_> = (0..5_000).map(|_| tokio::spawn(service.clone().oneshot(ask("{}")))).collect();
            for one in all {
                assert_eq!(read(one.await.unwrap().unwrap()).await, "{}");
            }
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(half);
        scope.spawn(half);
    });
    assert_eq!(model.calls(), 1);
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

type OfService<S> = Pin<Box<<S as Service<Req>>::Future>>;

/// Calls that are polled by hand: only when they were woken, and counted.
struct Polled<S: Service<Req>> {
    future: Option<OfService<S>>,
    wakes: Arc<Wakes>,
    seen: usize,
    polls: usize,
}

impl<S: Service<Req> + Clone> Polled<S> {
    fn new(service: &S) -> Self {
        let future = Some(Box::pin(service.clone().call(ask("{}"))));
        Self { future, wakes: Arc::default(), seen: usize::MAX, polls: 0 }
    }

    fn poll(&mut self) -> Option<Result<S::Response, S::Error>> {
        let woken = self.wakes.0.load(Ordering::Relaxed);
        if self.seen == woken {
            return None;
        }
        self.seen = woken;
        self.polls += 1;
        let future = self.future.as_mut()?;
        match future.as_mut().poll(&mut Context::from_waker(&Arc::clone(&self.wakes).into())) {
            Poll::Ready(outcome) => {
                self.future = None;
                Some(outcome)
            }
            Poll::Pending => None,
        }
    }
}

// P22, P23, G120, G121: each of ten leaders is cancelled in turn; the followers are woken as often as they have something to
// do, and no upstream call more than leaders.
#[tokio::test(start_paused = true)]
async fn cancelled_leaders_neither_fail_nor_spin_their_followers() {
    let slow = Answer { after: Duration::from_secs(2), ..Answer::good("{}") };
    let model = Model::new([slow]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    let mut all: Vec<_> = (0..50).map(|_| Polled::new(&service)).collect();
    for call in &mut all {
        assert!(call.poll().is_none());
    }
    for leader in 0..10 {
        assert_eq!(model.calls(), leader + 1);
        assert_eq!(model.running.load(Ordering::Relaxed), 1, "only one asks");
        drop(all.remove(0));
        for call in &mut all {
            assert!(call.poll().is_none());
        }
    }
    tokio::time::advance(Duration::from_secs(3)).await;
    tokio::task::yield_now().await;
    let first = all[0].poll().expect("the leader answers").unwrap();
    assert_eq!(read(first).await, "{}");
    for call in &mut all[1..] {
        let shared = call.poll().expect("its follower has that answer").unwrap();
        assert!(CacheStatus::of(shared.extensions()).is_some_and(CacheStatus::is_shared));
        assert_eq!(shared.headers()["cache-status"], "cache; fwd=miss; collapsed");
    }
    assert_eq!(model.calls(), 11);
    let polls: usize = all.iter().map(|call| call.polls).sum();
    assert!(polls <= 2 * all.len() + 10, "{polls} polls of {} calls", all.len());
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_body_is_dropped_half_way_is_followed_by_one() {
    let model = Model::new([Answer { pieces: vec![Ok("{".into()), Ok("}".into())], ..Answer::good("") }]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    let mut body = service.clone().oneshot(ask("{}")).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    let mut followers: Vec<_> = (0..9).map(|_| Polled::new(&service)).collect();
    assert!(followers.iter_mut().all(|follower| follower.poll().is_none()));
    drop(body);
    let taken: Vec<_> = followers.iter_mut().filter_map(Polled::poll).collect();
    assert_eq!((taken.len(), model.calls()), (1, 2));
    assert_eq!(read(taken.into_iter().next().unwrap().unwrap()).await, "{}");
    assert_eq!(followers.iter_mut().filter_map(Polled::poll).count(), 8);
    assert_eq!(model.calls(), 2);
}

// G120, G121
#[tokio::test(start_paused = true)]
async fn a_failing_leader_is_followed_by_two_then_four_and_no_failure_is_shared() {
    let fails = Answer { status: 503, verdict: Some(Verdict::of(Class::Overloaded)), ..Answer::good("busy") };
    let errs = Answer { status: 0, ..fails.clone() };
    let model = Model::new([
        fails.clone(),
        errs,
        fails.clone(),
        fails.clone(),
        fails.clone(),
        fails,
        Answer::good("{}"),
    ]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    // Each asks in turn, and so the first of each round is polled to its end before the next one.
    let mut all: Vec<_> = (0..20).map(|_| Polled::new(&service)).collect();
    let (mut good, mut bad) = (0, 0);
    while all.iter().any(|call| call.future.is_some()) {
        for call in &mut all {
            match call.poll() {
                Some(Ok(response)) if response.status() == StatusCode::OK => {
                    good += 1;
                    assert_eq!(read(response).await, "{}");
                }
                Some(_) => bad += 1,
                None => {}
            }
        }
    }
    assert_eq!((good, bad), (14, 6), "who fails has asked for itself");
    assert!(model.calls() <= 10, "{}", model.calls());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_may_not_be_kept_does_not_make_the_others_queue() {
    let own = Answer { after: Duration::from_secs(1), ..Answer::good("{}") }.with("set-cookie", "session=1");
    let model = Model::new([own]);
    let service = CacheLayer::new(cache()).layer(model.clone());
    let start = tokio::time::Instant::now();
    futures_util::future::join_all((0..20).map(|_| get(&service, ask("{}")))).await;
    assert_eq!((start.elapsed().as_secs(), model.calls()), (2, 20));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_does_not_read_on_is_taken_over_from() {
    let model = Model::new([Answer { pieces: vec![Ok("{".into()), Ok("}".into())], ..Answer::good("") }]);
    let cache = Cache::builder().scope(tenant).patience(Duration::from_secs(30)).build().unwrap();
    let service = CacheLayer::new(cache.clone()).layer(model.clone());
    let mut stuck = service.clone().oneshot(ask("{}")).await.unwrap().into_body();
    stuck.frame().await.unwrap().unwrap();
    let start = tokio::time::Instant::now();
    let answers = futures_util::future::join_all((0..5).map(|_| get(&service, ask("{}")))).await;
    assert!(answers.iter().all(|answer| answer == "{}"));
    assert_eq!((start.elapsed().as_secs(), model.calls()), (30, 2));
    assert_eq!(stuck.collect().await.unwrap().to_bytes(), "}");
    assert_eq!((cache.len(), cache.in_flight()), (1, 0));
}

/// Dropped after each number of polls, of call and body: nothing is left behind, nothing cut is kept, and the next call is
/// answered.
#[tokio::test(start_paused = true)]
async fn dropped_after_any_poll_nothing_is_left_behind() {
    for polls in 0..8 {
        let pieces = vec![Ok("{".into()), Ok("}".into())];
        let model = Model::new([Answer { pieces, after: Duration::from_millis(1), ..Answer::good("") }]);
        let cache = cache();
        let service = CacheLayer::new(cache.clone()).layer(model.clone());
        let one = async {
            let response = service.clone().oneshot(ask("{}")).await.unwrap();
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                frame.unwrap();
                tokio::task::yield_now().await;
            }
        };
        {
            let mut one = tokio_test::task::spawn(one);
            for _ in 0..polls {
                if one.poll().is_ready() {
                    break;
                }
                tokio::time::advance(Duration::from_millis(1)).await;
            }
        }
        assert_eq!(cache.in_flight(), 0, "after {polls}");
        assert_eq!(get(&service, ask("{}")).await, "{}");
        assert_eq!(model.running.load(Ordering::Relaxed), 0);
    }
}
