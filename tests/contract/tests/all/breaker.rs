//! The breaker passes the contract.

use breaker_layer::{BreakerLayer, Keyed};
use contract::Probe;

contract::contract! {
    breaker => |_inner| BreakerLayer::builder().build().expect("the defaults are right")
}

contract::contract! {
    breaker_pending_while_open =>
        |_inner| BreakerLayer::builder().pending_while_open().build().expect("the defaults are right")
}

/// Any request belongs to the same circuit.
#[derive(Clone, Copy, Debug)]
struct Any;

impl<Req> Keyed<Req> for Any {
    fn with_key<T>(&self, _: &Req, found: impl FnOnce(&str) -> T) -> T {
        found("any")
    }
}

contract::contract! {
    breaker_keyed => |_inner| BreakerLayer::builder().keyed(Any).build().expect("the defaults are right")
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_key_gives_the_readied_inner_service_back() {
    let layer = BreakerLayer::builder().keyed(Any).build().expect("the defaults are right");
    let circuit = layer.circuits().of("any");
    let refuse = || circuit.open().expect("it may be opened");
    contract::refusal_gives_back(layer.clone(), &Probe::new(), refuse, || circuit.reset()).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_gives_the_readied_inner_service_back() {
    let layer = BreakerLayer::builder().build().expect("the defaults are right");
    let circuit = layer.circuit().clone();
    let refuse = || circuit.open().expect("it may be opened");
    contract::refusal_gives_back(layer.clone(), &Probe::new(), refuse, || circuit.reset()).await;
}
