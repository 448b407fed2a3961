//! A circuit for each key, as a caller sees it.
#![cfg(not(failsoft_loom))]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use breaker_layer::engine::{Mode, Over, Probes, State};
use breaker_layer::{BreakerBuilder, BreakerLayer, Circuits};
use bytes::Bytes;
use failsoft_core::{BoxError, Call, Class, Denier, ErrorsOnly, Fault, FaultDetails, Mark};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};
use tower_test::{assert_request_eq, mock};

type Mock = mock::Mock<&'static str, &'static str>;

const SECOND: Duration = Duration::from_secs(1);

/// Opens at the first failure, for 1 s; one probe decides.
fn touchy() -> BreakerBuilder<ErrorsOnly> {
    BreakerLayer::builder()
        .name("it")
        .classify(ErrorsOnly)
        .over(Over::Calls(10))
        .failures(1)
        .soft_alone_may_not_open()
        .open_time(SECOND)
        .jitter(0.0)
        .probes(Probes::Failures { probes: 1, to_open: 1 })
}

fn denied(error: &BoxError) -> &FaultDetails {
    let fault = Fault::find(&**error).expect("a refusal is a fault");
    assert_eq!(fault.class(), Class::Denied(Denier::Circuit));
    fault
}

/// A call is its key, and whether it fails.
type Asked = (&'static str, bool);

/// A service that does as it is told.
async fn obey((_, fails): Asked) -> Result<(), BoxError> {
    if fails { Err("it is down".into()) } else { Ok(()) }
}

/// Makes one call; `Err` if it is refused.
async fn call<S>(service: &mut S, asked: Asked) -> Result<(), BoxError>
where
    S: Service<Asked, Response = (), Error = BoxError>,
{
    match service.ready().await.unwrap().call(asked).await {
        Err(error) if Fault::find(&*error).is_some() => Err(error),
        _ => Ok(()),
    }
}

#[tokio::test(start_paused = true)]
async fn each_key_has_a_circuit_of_its_own_and_the_refusal_names_it() {
    let layer = touchy().key_fn(|asked: &Asked| asked.0).build().unwrap();
    let mut service = layer.layer(tower::service_fn(obey));
    call(&mut service, ("a", true)).await.unwrap();
    let refused = call(&mut service, ("a", false)).await.unwrap_err();
    assert_eq!((denied(&refused).target(), denied(&refused).retry_after()), (Some("it/a"), Some(SECOND)));
    call(&mut service, ("b", false)).await.unwrap();
    let circuits = layer.circuits();
    assert_eq!(circuits.get("a").unwrap().state(), State::Open);
    assert_eq!(circuits.get("b").unwrap().state(), State::Closed);
    assert_eq!((circuits.len(), circuits.get("c").is_none()), (2, true));
    tokio::time::advance(SECOND).await;
    call(&mut service, ("a", false)).await.unwrap();
    assert_eq!(circuits.get("a").unwrap().state(), State::Closed);
}

#[tokio::test(start_paused = true)]
async fn all_services_of_one_layer_share_its_circuits() {
    // P20
    let layer = touchy().key_fn(|asked: &Asked| asked.0).build().unwrap();
    call(&mut layer.layer(tower::service_fn(obey)), ("a", true)).await.unwrap();
    call(&mut layer.clone().layer(tower::service_fn(obey)), ("a", false)).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn readiness_is_that_of_the_inner_service_and_a_refused_call_asks_nothing_of_it() {
    let layer = touchy().key_fn(|request: &&'static str| *request).build().unwrap();
    let (mut service, mut handle) = mock::spawn_layer::<&str, &str, _>(layer.clone());
    layer.circuits().of("a").open().unwrap();
    handle.allow(0);
    assert_pending!(service.poll_ready());
    handle.allow(2);
    assert_ready_ok!(service.poll_ready());
    denied(&assert_ready_err!(task::spawn(service.call("a")).poll()));
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call("b"));
    assert_request_eq!(handle, "b").send_response("well");
    assert_eq!(assert_ready_ok!(call.poll()), "well");
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_gives_back_the_readiness_of_the_inner_service() {
    let layer = touchy().key_fn(|asked: &Asked| asked.0).build().unwrap();
    let mut refused = layer.layer(ConcurrencyLimit::new(tower::service_fn(obey), 1));
    let mut other = refused.clone();
    layer.circuits().of("a").open().unwrap();
    refused.ready().await.unwrap();
    denied(&refused.call(("a", false)).await.unwrap_err());
    let ready = tokio::time::timeout(SECOND, other.ready()).await.expect("the place is free again");
    ready.unwrap().call(("b", false)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn dropped_at_any_point_a_probe_comes_back() {
    let layer = touchy().key_fn(|request: &&'static str| *request).build().unwrap();
    let (mut service, mut handle): (mock::Spawn<_>, mock::Handle<&'static str, &'static str>) =
        mock::spawn_with(move |inner: Mock| layer.layer(inner));
    let circuit = service.get_ref().circuits().of("a");
    circuit.half_open().unwrap();
    handle.allow(9);
    assert_ready_ok!(service.poll_ready());
    assert_eq!(circuit.snapshot().probes, 0);
    drop(service.call("a"));
    assert_eq!(circuit.snapshot().probes, 0);
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call("a"));
    assert_pending!(call.poll());
    assert_eq!(circuit.snapshot().probes, 1);
    drop(call);
    assert_eq!((circuit.state(), circuit.snapshot().probes), (State::HalfOpen, 0));
}

#[tokio::test(start_paused = true)]
async fn the_least_recently_used_key_goes_and_its_counts_with_it() {
    let layer = touchy().failures(2).key_fn(|asked: &Asked| asked.0).max_keys(2).build().unwrap();
    let mut service = layer.layer(tower::service_fn(obey));
    for asked in [("a", true), ("b", false), ("a", false), ("c", false)] {
        call(&mut service, asked).await.unwrap();
    }
    let circuits = layer.circuits();
    assert_eq!((circuits.len(), circuits.evicted(), circuits.overflowed()), (2, 1, 0));
    assert!(circuits.get("b").is_none());
    assert_eq!(circuits.get("a").unwrap().counts().failed, 1);
    call(&mut service, ("d", false)).await.unwrap();
    call(&mut service, ("e", false)).await.unwrap();
    call(&mut service, ("a", false)).await.unwrap();
    assert_eq!(circuits.get("a").unwrap().counts().failed, 0, "it started over");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_open_or_half_open_is_not_forgotten_and_new_ones_share_the_overflow() {
    let layer = touchy().key_fn(|asked: &Asked| asked.0).max_keys(2).build().unwrap();
    let mut service = layer.layer(tower::service_fn(obey));
    call(&mut service, ("a", true)).await.unwrap();
    call(&mut service, ("b", true)).await.unwrap();
    layer.circuits().of("b").half_open().unwrap();
    // no room for these: they are protected together
    call(&mut service, ("c", false)).await.unwrap();
    call(&mut service, ("d", true)).await.unwrap();
    let refused = call(&mut service, ("e", false)).await.unwrap_err();
    assert_eq!(denied(&refused).target(), Some("it/(overflow)"));
    let circuits = layer.circuits();
    assert_eq!((circuits.len(), circuits.evicted(), circuits.overflowed()), (2, 0, 3));
    assert_eq!(circuits.overflow().state(), State::Open);
    call(&mut service, ("a", false)).await.unwrap_err();
    // and once there is room again, they get circuits of their own
    tokio::time::advance(SECOND).await;
    call(&mut service, ("a", false)).await.unwrap();
    call(&mut service, ("e", false)).await.unwrap();
    assert!(circuits.get("e").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_key_in_flight_is_not_forgotten_until_the_end_of_its_body() {
    let layer = BreakerLayer::builder()
        .key_ref(|request: &Request<()>| request.uri().path())
        .max_keys(1)
        .build()
        .unwrap();
    let service = layer.layer(tower::service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("x")))
    }));
    let request = |path: &str| Request::get(path).body(()).unwrap();
    let body = service.clone().oneshot(request("/a")).await.unwrap().into_body();
    let other = service.clone().oneshot(request("/b")).await.unwrap().into_body();
    assert_eq!((layer.circuits().overflowed(), layer.circuits().evicted()), (1, 0));
    body.collect().await.unwrap();
    drop(other);
    assert_eq!(layer.circuits().get("/a").unwrap().counts().total, 1);
    service.oneshot(request("/c")).await.unwrap().into_body().collect().await.unwrap();
    assert!(layer.circuits().get("/a").is_none() && layer.circuits().get("/c").is_some());
}

#[tokio::test(start_paused = true)]
async fn what_somebody_holds_or_has_switched_is_not_forgotten() {
    let layer = touchy().key_fn(|asked: &Asked| asked.0).max_keys(3).build().unwrap();
    let mut service = layer.layer(tower::service_fn(obey));
    layer.circuits().of("off").set_mode(Mode::Disabled);
    layer.circuits().of("shut").set_mode(Mode::ForcedOpen);
    let held = layer.circuits().of("held");
    for key in ["x", "y", "z"] {
        call(&mut service, (key, false)).await.unwrap();
    }
    assert_eq!((layer.circuits().evicted(), layer.circuits().overflowed()), (0, 3));
    drop(held);
    call(&mut service, ("x", false)).await.unwrap();
    assert_eq!(layer.circuits().evicted(), 1);
    let refused = call(&mut service, ("shut", false)).await.unwrap_err();
    assert_eq!(denied(&refused).message(), Some("the circuit is forced open"));
    assert_eq!(layer.circuits().get("off").unwrap().mode(), Mode::Disabled);
}

#[tokio::test(start_paused = true)]
async fn some_keys_may_be_configured_otherwise_and_the_last_that_fits_wins() {
    let layer = touchy()
        .key_fn(|asked: &Asked| asked.0)
        .override_keys(
            |key| key.starts_with("slow-"),
            |it| it.open_time(9 * SECOND).max_open_time(9 * SECOND),
        )
        .override_key("slow-b", |it| it.open_time(5 * SECOND))
        .override_key("other", |_| BreakerLayer::builder().name("by itself"))
        .build()
        .unwrap();
    let mut service = layer.layer(tower::service_fn(obey));
    for (key, open) in [("a", Some(1)), ("slow-a", Some(9)), ("slow-b", Some(5)), ("other", None)] {
        call(&mut service, (key, true)).await.unwrap();
        let circuit = layer.circuits().get(key).unwrap();
        assert_eq!(circuit.time_left(), open.map(|seconds| seconds * SECOND), "{key}");
    }
    assert_eq!(layer.circuits().get("other").unwrap().name(), Some("by itself"));
}

#[test]
fn an_override_is_checked_when_the_layer_is_built() {
    let keyed = || touchy().key_fn(|asked: &Asked| asked.0);
    let field = |error: failsoft_core::ConfigError| error.field().to_owned();
    assert_eq!(keyed().override_key("a", |it| it.jitter(2.0)).build().map_err(field).unwrap_err(), "jitter");
    assert_eq!(keyed().max_keys(0).build().map_err(field).unwrap_err(), "max_keys");
    assert_eq!(keyed().pending_while_open().build().map_err(field).unwrap_err(), "pending_while_open");
    let waits = keyed().override_key("a", BreakerBuilder::pending_while_open);
    assert_eq!(waits.build().map_err(field).unwrap_err(), "pending_while_open");
}

#[tokio::test(start_paused = true)]
async fn secret_keys_are_not_seen() {
    let keyed = |builder: BreakerBuilder<ErrorsOnly>| {
        builder.key_fn(|asked: &Asked| asked.0).name_fn(|key| format!("…{}", &key[key.len() - 2..]))
    };
    let layer = keyed(touchy()).build().unwrap();
    let mut service = layer.layer(tower::service_fn(obey));
    call(&mut service, ("sk-secret-42", true)).await.unwrap();
    let refused = call(&mut service, ("sk-secret-42", true)).await.unwrap_err();
    assert_eq!(denied(&refused).target(), Some("it/…42"));
    assert!(!format!("{refused:?} {refused} {layer:?} {service:?}").contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn a_layer_without_a_name_calls_circuits_as_their_keys_and_no_key_has_none() {
    let layer = BreakerLayer::builder().per_authority().build().unwrap();
    let circuits = layer.circuits();
    let service = layer.layer(tower::service_fn(|_: Request<()>| async {
        Response::builder().status(200).body(Full::<Bytes>::from("x"))
    }));
    for uri in ["http://user:secret@a.example:8080/1", "http://a.example:8080/2", "/3"] {
        let body = service.clone().oneshot(Request::get(uri).body(()).unwrap()).await.unwrap().into_body();
        body.collect().await.unwrap();
    }
    let mut names: Vec<_> = circuits
        .entries()
        .into_iter()
        .map(|(_, circuit)| (circuit.name().map(str::to_owned), circuit.counts().total))
        .collect();
    names.sort();
    assert_eq!(names, [(None, 1), (Some("a.example:8080".to_owned()), 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_last_resort_call_passes_the_circuit_of_its_key() {
    let layer = touchy().key_fn(|asked: &Asked| asked.0).build().unwrap();
    let mut service = layer.layer(tower::service_fn(obey));
    call(&mut service, ("a", true)).await.unwrap();
    let last = Call::options().mark(Mark::LastResort).begin();
    last.scope(call(&mut service, ("a", true))).await.unwrap();
    call(&mut service, ("a", false)).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn one_listener_hears_of_all_circuits_also_of_later_ones() {
    let layer = touchy().key_fn(|asked: &Asked| asked.0).max_keys(1).build().unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let tell = |circuits: &Circuits| {
        let heard = Arc::clone(&heard);
        circuits.subscribe(move |circuit, transition| {
            heard.lock().unwrap().push((circuit.name().unwrap().to_owned(), transition.to));
        })
    };
    let subscription = tell(layer.circuits());
    let mut service = layer.layer(tower::service_fn(obey));
    for key in ["a", "b"] {
        call(&mut service, (key, true)).await.unwrap();
    }
    let expected = [("it/a".to_owned(), State::Open), ("it/(overflow)".to_owned(), State::Open)];
    assert_eq!(*heard.lock().unwrap(), expected);
    drop(subscription);
    layer.circuits().of("a").reset();
    assert_eq!(heard.lock().unwrap().len(), 2);
    tell(layer.circuits()).forever();
    layer.circuits().of("a").open().unwrap();
    assert_eq!(heard.lock().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn one_tenants_failures_do_not_shut_a_shared_target_for_the_others() {
    // G14, G27, G37: a spent quota cools the credential that spent it, not the model
    struct Asks {
        model: &'static str,
        credential: &'static str,
    }
    let layer = BreakerLayer::builder()
        .classify(ErrorsOnly)
        .key_fn(|asks: &Asks| format!("{}#{}", asks.model, asks.credential))
        .build()
        .unwrap();
    let mut service = layer.layer(tower::service_fn(|asks: Asks| async move {
        match asks.credential {
            "spent" => Err(Fault::new(Class::Quota, "x")),
            _ => Ok(asks.model),
        }
    }));
    let asks = |credential| Asks { model: "m", credential };
    service.ready().await.unwrap().call(asks("spent")).await.unwrap_err();
    denied(&service.ready().await.unwrap().call(asks("spent")).await.unwrap_err());
    service.ready().await.unwrap().call(asks("other")).await.unwrap();
}

#[test]
fn what_is_clone_send_and_sync_inside_is_so_outside() {
    fn all<T: Clone + Send + Sync + std::fmt::Debug + 'static>(_: &T) {}
    let layer = touchy().key_fn(|asked: &Asked| asked.0).build().unwrap();
    all(&layer);
    all(layer.circuits());
    all(&layer.layer(()));
}
