//! The layer as a caller sees it: readiness, admission, and who gets what back.
#![cfg(not(failsoft_loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use breaker_layer::engine::{Mode, Over, Probes, Reason, State};
use breaker_layer::{Breaker, BreakerBuilder, BreakerLayer};
use failsoft_core::{
    Blame, BoxError, Call, Class, Condition, Denier, ErrorsOnly, Fault, FaultDetails, Health as _, Limit,
    Mark, Verdict, classify_fn,
};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_test::{assert_request_eq, mock};

type Mock = mock::Mock<&'static str, &'static str>;

const SECOND: Duration = Duration::from_secs(1);

/// Opens at the first failure, for 1 s; one probe decides; lease 10 s.
fn touchy() -> BreakerBuilder<ErrorsOnly> {
    BreakerLayer::builder()
        .name("it")
        .classify(ErrorsOnly)
        .over(Over::Calls(10))
        .failures(1)
        .soft_alone_may_not_open()
        .open_time(SECOND)
        .jitter(0.0)
        .lease(10 * SECOND)
        .probes(Probes::Failures { probes: 1, to_open: 1 })
}

fn spawn(
    builder: BreakerBuilder<ErrorsOnly>,
) -> (mock::Spawn<Breaker<Mock, ErrorsOnly>>, Handle, BreakerLayer<ErrorsOnly>) {
    let layer = builder.build().unwrap();
    let (service, handle) = mock::spawn_layer(layer.clone());
    (service, handle, layer)
}

type Handle = mock::Handle<&'static str, &'static str>;

fn denied(error: &BoxError) -> &FaultDetails {
    let fault = Fault::find(&**error).expect("a refusal is a fault");
    assert_eq!(fault.class(), Class::Denied(Denier::Circuit));
    fault
}

/// Bounds what must not hang; the clock is paused, so this costs no time.
async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(3600 * SECOND, future).await.expect("it hangs")
}

/// Makes one call that fails.
async fn fail(service: &mut mock::Spawn<Breaker<Mock, ErrorsOnly>>, handle: &mut Handle) {
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call("bad"));
    assert_request_eq!(handle, "bad").send_error("it is down");
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "it is down");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_who_refuses_and_for_how_long_and_asks_nothing_of_the_inner_service() {
    let (mut service, mut handle, layer) = spawn(touchy());
    fail(&mut service, &mut handle).await;
    handle.allow(0);
    assert_ready_ok!(service.poll_ready());
    let error = assert_ready_err!(task::spawn(service.call("no")).poll());
    let fault = denied(&error);
    assert_eq!((fault.target(), fault.layer()), (Some("it"), "breaker-layer"));
    assert_eq!(fault.retry_after(), Some(SECOND));
    assert_eq!(fault.message(), Some("the circuit is open"));
    assert_eq!(layer.circuit().counts().refused, 1);
}

#[tokio::test(start_paused = true)]
async fn an_error_that_passes_through_is_not_wrapped() {
    let service = tower::service_fn(|()| async { Err::<(), _>(std::io::Error::other("x")) });
    let error = touchy().build().unwrap().layer(service).oneshot(()).await.unwrap_err();
    assert!(error.is::<std::io::Error>());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_sticks_until_the_call_and_not_longer() {
    let (mut service, mut handle, layer) = spawn(touchy());
    fail(&mut service, &mut handle).await;
    assert_ready_ok!(service.poll_ready());
    tokio::time::advance(SECOND).await;
    assert_ready_ok!(service.poll_ready());
    denied(&assert_ready_err!(task::spawn(service.call("refused")).poll()));
    assert_eq!(layer.circuit().state(), State::Open, "the refused call took no probe");

    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call("probe"));
    assert_eq!(layer.circuit().state(), State::HalfOpen);
    assert_request_eq!(handle, "probe").send_response("well");
    assert_eq!(assert_ready_ok!(call.poll()), "well");
    assert_eq!(layer.circuit().state(), State::Closed);
}

#[tokio::test(start_paused = true)]
async fn readiness_takes_no_probe_and_many_may_be_ready() {
    let (mut service, mut handle, layer) = spawn(touchy());
    fail(&mut service, &mut handle).await;
    tokio::time::advance(SECOND).await;
    let mut ready: Vec<_> = (0..100).map(|_| mock::Spawn::new(service.get_ref().clone())).collect();
    ready.iter_mut().for_each(|one| assert_ready_ok!(one.poll_ready()));
    assert_eq!(layer.circuit().state(), State::Open, "only asking");
    let probe = ready[0].call("probe");
    for other in &mut ready[1..] {
        let error = assert_ready_err!(task::spawn(other.call("lost the race")).poll());
        assert_eq!(denied(&error).message(), Some("the circuit is probing"));
    }
    drop(probe);
    assert_eq!(layer.circuit().snapshot().probes, 0, "and it came back");
}

#[tokio::test(start_paused = true)]
async fn a_clone_carries_neither_readiness_nor_a_refusal() {
    let (mut service, mut handle, _layer) = spawn(touchy());
    fail(&mut service, &mut handle).await;
    assert_ready_ok!(service.poll_ready());
    let mut clone = mock::Spawn::new(service.get_ref().clone());
    tokio::time::advance(SECOND).await;
    handle.allow(1);
    assert_ready_ok!(clone.poll_ready());
    let mut call = task::spawn(clone.call("admitted"));
    assert_pending!(call.poll());
    assert_request_eq!(handle, "admitted").send_response("well");
    assert_ready_ok!(call.poll());
}

#[tokio::test(start_paused = true)]
async fn a_refused_service_gives_back_the_readiness_of_its_inner_service() {
    let layer = touchy().build().unwrap();
    let inner = tower::service_fn(|()| async { Ok::<_, BoxError>(()) });
    let mut refused = layer.layer(ConcurrencyLimit::new(inner, 1));
    let mut other = refused.clone();
    // at the call
    within(refused.ready()).await.unwrap();
    layer.circuit().open().unwrap();
    denied(&refused.call(()).await.unwrap_err());
    layer.circuit().reset();
    within(other.ready()).await.unwrap().call(()).await.unwrap();
    // and when readiness is asked for again
    within(refused.ready()).await.unwrap();
    layer.circuit().open().unwrap();
    within(refused.ready()).await.unwrap();
    layer.circuit().reset();
    within(other.ready()).await.unwrap().call(()).await.unwrap();
    // and while it stands in the inner service's queue
    denied(&refused.call(()).await.unwrap_err());
    let running = within(other.ready()).await.unwrap().call(());
    let mut refused = task::spawn(refused);
    assert_pending!(refused.enter(|cx, mut service| service.poll_ready(cx)));
    layer.circuit().open().unwrap();
    assert_ready_ok!(refused.enter(|cx, mut service| service.poll_ready(cx)));
    layer.circuit().reset();
    running.await.unwrap();
    within(other.ready()).await.unwrap().call(()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn dropped_at_any_point_a_probe_comes_back() {
    let (mut service, mut handle, layer) = spawn(touchy());
    let probes = || layer.circuit().snapshot().probes;
    layer.circuit().half_open().unwrap();
    // ready, not called
    assert_ready_ok!(service.poll_ready());
    assert_eq!(probes(), 0);
    // called, not polled
    drop(service.call("one"));
    assert_eq!(probes(), 0);
    // polled
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call("two"));
    assert_pending!(call.poll());
    assert_eq!(probes(), 1);
    drop(call);
    assert_eq!(probes(), 0);
    // still half-open, and nothing was counted
    assert_eq!((layer.circuit().state(), layer.circuit().counts().total), (State::HalfOpen, 0));
    handle.allow(10);
    assert_ready_ok!(service.poll_ready());
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_call_or_of_its_future_is_a_failure_and_propagates() {
    // P21
    fn in_call(_: ()) -> std::future::Ready<Result<(), BoxError>> {
        panic!("inside")
    }
    async fn in_future(_: ()) -> Result<(), BoxError> {
        panic!("inside")
    }
    let layer = touchy().build().unwrap();
    let error = tokio::spawn(layer.layer(tower::service_fn(in_call)).oneshot(())).await.unwrap_err();
    assert!(error.is_panic());
    assert_eq!(layer.circuit().state(), State::Open);
    layer.circuit().reset();
    let error = tokio::spawn(layer.layer(tower::service_fn(in_future)).oneshot(())).await.unwrap_err();
    assert!(error.is_panic());
    assert_eq!(layer.circuit().state(), State::Open);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_outside_does_not_blind_it() {
    // P6: 200 hung calls were all dropped and recorded nothing
    let layer = touchy().failures(None).slow_after(4 * SECOND).slow_rate(0.5).min_calls(5).build().unwrap();
    let hung = tower::service_fn(|()| std::future::pending::<Result<(), BoxError>>());
    let mut service = ServiceBuilder::new().timeout(5 * SECOND).layer(layer.clone()).service(hung);
    for _ in 0..5 {
        assert!(
            service.ready().await.unwrap().call(()).await.unwrap_err().is::<tower::timeout::error::Elapsed>()
        );
    }
    assert_eq!(layer.circuit().state(), State::Open);
    assert_eq!(
        service.ready().await.unwrap().call(()).await.map_err(|error| denied(&error).class()),
        Err(Class::Denied(Denier::Circuit))
    );
}

#[tokio::test(start_paused = true)]
async fn a_callers_own_short_deadline_says_nothing_of_the_target() {
    // G27: one caller with a limit of 1 ms took a shared target down for everybody
    let layer = touchy().slow_after(4 * SECOND).slow_rate(0.1).min_calls(1).build().unwrap();
    // a deadline outside, by which the call is dropped
    let slow = tower::service_fn(|()| async {
        tokio::time::sleep(SECOND).await;
        Ok::<_, BoxError>(())
    });
    let mut hurried = ServiceBuilder::new().timeout(SECOND / 1000).layer(layer.clone()).service(slow);
    // and one that a layer inside keeps, and says whose it was
    let keeps = tower::service_fn(|()| async {
        let verdict = Verdict::of(Class::Timeout(Limit::Total)).with_blame(Blame::Caller);
        Err::<(), _>(Fault::with_verdict(verdict, "stream-layer"))
    });
    let mut kept = layer.layer(keeps);
    for _ in 0..200 {
        hurried.ready().await.unwrap().call(()).await.unwrap_err();
        kept.ready().await.unwrap().call(()).await.unwrap_err();
    }
    assert_eq!((layer.circuit().state(), layer.circuit().counts().total), (State::Closed, 0));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_inside_is_a_failure() {
    // C39: hung calls never opened it
    let layer = touchy().build().unwrap();
    let hung = tower::service_fn(|()| std::future::pending::<Result<(), BoxError>>());
    let service = ServiceBuilder::new().layer(layer.clone()).timeout(SECOND).service(hung);
    assert!(service.oneshot(()).await.is_err());
    assert_eq!(layer.circuit().state(), State::Open);
}

#[tokio::test(start_paused = true)]
async fn refusals_and_other_denials_are_never_outcomes() {
    // G29, C45: local refusals kept it open
    let layer = touchy().build().unwrap();
    let denies = tower::service_fn(|()| async {
        Err::<(), _>(Fault::new(Class::Denied(Denier::Budget), "budget-layer"))
    });
    let mut service = layer.layer(denies);
    for _ in 0..20 {
        service.ready().await.unwrap().call(()).await.unwrap_err();
    }
    assert_eq!((layer.circuit().state(), layer.circuit().counts().total), (State::Closed, 0));
}

#[tokio::test(start_paused = true)]
async fn errors_inside_ok_answers_count() {
    // G123
    let layer = BreakerLayer::builder()
        .classify(classify_fn(|code: &u16| match code {
            200 => Verdict::SUCCESS,
            _ => Verdict::of(Class::Overloaded),
        }))
        .failures(3)
        .build()
        .unwrap();
    let mut service = layer.layer(tower::service_fn(|code: u16| async move { Ok::<_, BoxError>(code) }));
    for code in [503, 200, 503, 503] {
        assert_eq!(service.ready().await.unwrap().call(code).await.unwrap(), code);
    }
    assert_eq!(layer.circuit().state(), State::Open);
}

#[tokio::test(start_paused = true)]
async fn readiness_errors_of_the_inner_service_are_passed_on() {
    // G125
    let (mut service, mut handle, _layer) = spawn(touchy());
    handle.send_error("gone");
    assert_eq!(assert_ready_err!(service.poll_ready()).to_string(), "gone");
}

#[tokio::test(start_paused = true)]
async fn behind_a_buffer_a_refusal_ends_nothing() {
    let layer = touchy().build().unwrap();
    let answers =
        tower::service_fn(|ok: bool| async move { if ok { Ok(()) } else { Err(BoxError::from("no")) } });
    let mut service = tower::buffer::Buffer::new(layer.layer(answers), 8);
    assert!(service.ready().await.unwrap().call(false).await.is_err());
    for _ in 0..5 {
        denied(&service.ready().await.unwrap().call(true).await.unwrap_err());
    }
    tokio::time::sleep(SECOND).await;
    for _ in 0..5 {
        service.ready().await.unwrap().call(true).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn last_resort_calls_pass_an_open_circuit_and_close_it_if_they_are_good() {
    let probes = Probes::Successes { probes: 2, to_close: 2 };
    let layer = touchy().last_resort(1).open_time(60 * SECOND).probes(probes).build().unwrap();
    let service = layer.layer(tower::service_fn(|ok: bool| async move {
        tokio::time::sleep(SECOND).await;
        if ok { Ok(()) } else { Err(BoxError::from("no")) }
    }));
    service.clone().oneshot(false).await.unwrap_err();
    let last = || Call::options().mark(Mark::LastResort).begin().scope(service.clone().oneshot(true));
    let (first, second) = tokio::join!(last(), last());
    first.unwrap();
    denied(&second.unwrap_err());
    denied(&service.clone().oneshot(true).await.unwrap_err());
    last().await.unwrap();
    assert_eq!(layer.circuit().state(), State::Closed, "58 s before a probe would have been let through");
    service.clone().oneshot(true).await.unwrap();

    layer.circuit().set_mode(Mode::ForcedOpen);
    let error = last().await.unwrap_err();
    assert_eq!(denied(&error).message(), Some("the circuit is forced open"));
}

#[tokio::test(start_paused = true)]
async fn pending_while_open_is_woken_by_the_deadline_and_holds_what_it_promises() {
    // P37, P38
    let layer = touchy().pending_while_open().build().unwrap();
    let service = layer.layer(tower::service_fn(|()| async { Ok::<_, BoxError>(()) }));
    layer.circuit().open().unwrap();
    let mut all: Vec<_> = (0..100).map(|_| task::spawn(service.clone())).collect();
    let poll = |one: &mut task::Spawn<Breaker<_, _>>| one.enter(|cx, mut service| service.poll_ready(cx));
    all.iter_mut().for_each(|one| assert_pending!(poll(one)));
    assert!(!all.iter().any(task::Spawn::is_woken), "nobody wakes itself");
    assert_eq!(layer.circuit().counts().refused, 0);

    tokio::time::advance(SECOND).await;
    let ready: Vec<_> = all
        .iter_mut()
        .filter(|one| one.is_woken())
        .filter_map(|one| match poll(one) {
            std::task::Poll::Ready(result) => Some((result, one)),
            std::task::Poll::Pending => None,
        })
        .collect();
    assert_eq!(ready.len(), 1, "one probe, one ready");
    let (result, probe) = ready.into_iter().next().unwrap();
    result.unwrap();
    let call = probe.enter(|_, mut service| service.call(()));
    call.await.unwrap();
    assert_eq!(layer.circuit().state(), State::Closed);
    all.iter_mut().filter(|one| one.is_woken()).for_each(|one| assert_ready_ok!(poll(one)));
}

#[tokio::test(start_paused = true)]
async fn pending_while_probing_is_woken_when_the_probe_comes_back_or_its_lease_ends() {
    let layer = touchy().pending_while_open().build().unwrap();
    let service = layer.layer(tower::service_fn(|()| std::future::pending::<Result<(), BoxError>>()));
    layer.circuit().half_open().unwrap();
    let poll = |one: &mut task::Spawn<Breaker<_, _>>| one.enter(|cx, mut service| service.poll_ready(cx));
    let (mut first, mut second) = (task::spawn(service.clone()), task::spawn(service));
    assert_ready_ok!(poll(&mut first));
    assert_pending!(poll(&mut second));
    drop(first);
    assert!(second.is_woken());
    assert_ready_ok!(poll(&mut second));

    let mut third = task::spawn(second.enter(|_, service| service.clone()));
    assert_pending!(poll(&mut third));
    let _hung = second.enter(|_, mut service| service.call(()));
    tokio::time::advance(10 * SECOND).await;
    assert!(third.is_woken(), "the lease ended");
    assert_pending!(poll(&mut third));
    tokio::time::advance(SECOND).await;
    assert!(third.is_woken(), "the open time ended");
    assert_ready_ok!(poll(&mut third));
}

#[tokio::test(start_paused = true)]
async fn pending_while_open_a_last_resort_is_woken_when_a_place_is_free_again() {
    // P37
    let layer = touchy().pending_while_open().last_resort(1).open_time(60 * SECOND).build().unwrap();
    let service = layer.layer(tower::service_fn(|()| async { Err::<(), _>(BoxError::from("no")) }));
    layer.circuit().open().unwrap();
    let last = Call::options().mark(Mark::LastResort).begin();
    let poll = |one: &mut task::Spawn<Breaker<_, _>>| {
        one.enter(|cx, mut service| last.enter(|| service.poll_ready(cx)))
    };
    let (mut first, mut second) = (task::spawn(service.clone()), task::spawn(service));
    assert_ready_ok!(poll(&mut first));
    assert_pending!(poll(&mut second));
    let call = first.enter(|_, mut service| last.enter(|| service.call(())));
    call.await.unwrap_err();
    assert!(second.is_woken(), "60 s before the circuit lets a probe through");
    assert_ready_ok!(poll(&mut second));
}

#[tokio::test(start_paused = true)]
async fn listeners_hear_each_transition_outside_of_locks_and_their_panics_go_no_further() {
    // P28, C29
    let layer = touchy().build().unwrap();
    let circuit = layer.circuit().clone();
    let heard = Arc::new(AtomicUsize::new(0));
    let (count, asked) = (heard.clone(), circuit.clone());
    let counting = circuit.subscribe(move |transition| {
        // using the circuit here would deadlock under a lock
        assert_eq!(asked.state(), transition.to);
        asked.subscribe(|_| {}).forever();
        count.fetch_add(1, Ordering::Relaxed);
    });
    circuit.subscribe(|_| panic!("a listener's own fault")).forever();

    let mut service = layer.layer(tower::service_fn(|()| async { Err::<(), _>(BoxError::from("no")) }));
    assert_eq!(service.ready().await.unwrap().call(()).await.unwrap_err().to_string(), "no");
    assert_eq!(heard.load(Ordering::Relaxed), 1);
    tokio::time::advance(SECOND).await;
    service.ready().await.unwrap().call(()).await.unwrap_err();
    assert_eq!(heard.load(Ordering::Relaxed), 3);
    drop(counting);
    circuit.reset();
    assert_eq!((heard.load(Ordering::Relaxed), circuit.state()), (3, State::Closed));
}

#[tokio::test(start_paused = true)]
async fn health_follows_the_state() {
    let layer = touchy().build().unwrap();
    let circuit = layer.circuit();
    assert_eq!((circuit.condition(), circuit.recovers_in()), (Condition::Good, None));
    circuit.open().unwrap();
    assert_eq!((circuit.condition(), circuit.recovers_in()), (Condition::Poor, Some(SECOND)));
    tokio::time::advance(SECOND).await;
    assert_eq!((circuit.condition(), circuit.recovers_in()), (Condition::Degraded, None));
    circuit.half_open().unwrap();
    assert_eq!(circuit.condition(), Condition::Degraded);
    circuit.set_mode(Mode::ForcedOpen);
    assert_eq!((circuit.condition(), circuit.recovers_in()), (Condition::Poor, None));
}

#[tokio::test(start_paused = true)]
async fn health_is_that_of_now_also_where_a_lease_has_ended_and_nobody_called() {
    for look in 0..2 {
        let layer = touchy().open_time(100 * SECOND).lease(SECOND).build().unwrap();
        let circuit = layer.circuit();
        circuit.half_open().unwrap();
        tokio::time::advance(SECOND * 5).await;
        match look {
            0 => assert_eq!(circuit.condition(), Condition::Poor),
            _ => assert_eq!(circuit.recovers_in(), Some(96 * SECOND)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn transitions_tell_why_and_with_which_numbers() {
    let layer = touchy().failures(None).failure_rate(0.5).min_calls(4).build().unwrap();
    let (sent, heard) = std::sync::mpsc::channel();
    let sent = std::sync::Mutex::new(sent);
    layer
        .circuit()
        .subscribe(move |transition| sent.lock().unwrap().send(transition.clone()).unwrap())
        .forever();
    let mut service = layer.layer(tower::service_fn(|ok: bool| async move {
        if ok { Ok(()) } else { Err(BoxError::from("no")) }
    }));
    for ok in [true, true, false, false] {
        let _ = service.ready().await.unwrap().call(ok).await;
    }
    let told = heard.try_recv().unwrap();
    assert_eq!((told.from, told.to, told.reason), (State::Closed, State::Open, Reason::FailureRate));
    assert_eq!((told.counts.total, told.counts.failed, told.counts.failure_rate), (4, 2, Some(0.5)));
    assert_eq!((told.consecutive_openings, told.open_for), (1, Some(SECOND)));
    assert_eq!(told.to_string(), "closed -> open (failure_rate) for 1s");
}

#[test]
fn what_is_clone_send_and_sync_inside_is_so_outside() {
    fn all<T: Clone + Send + Sync + std::fmt::Debug + 'static>(_: &T) {}
    let layer = touchy().build().unwrap();
    all(&layer);
    all(layer.circuit());
    all(&layer.layer(()));
}
