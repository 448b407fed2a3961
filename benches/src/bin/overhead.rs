//! Prints what each layer costs a call; `--json` prints an array of objects instead.

use std::{future::Ready, time::Duration};

use benches::{Echo, Row, measure};
use breaker_layer::{
    BreakerBuilder, BreakerLayer,
    engine::{Mode, Over},
};
use failsoft_core::{BoxError, ConfigError, ErrorsOnly};
use fallback_layer::{FallbackLayer, Route};
use retry_layer::RetryLayer;
use tower::{
    Layer, ServiceBuilder,
    retry::{
        Policy,
        budget::{Budget, TpsBudget},
    },
};

fn main() -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let _time = runtime.enter();
    let rows = ours()?.into_iter().chain(peers()?).collect::<Vec<_>>();
    if std::env::args().any(|arg| arg == "--json") {
        let objects: Vec<_> = rows.iter().map(json).collect();
        println!("[{}]", objects.join(", "));
        return Ok(());
    }
    println!("{:<36} {:>8} {:>8} {:>7} {:>7}", "", "ns", "ns, 2", "allocs", "yields");
    for Row { name, ns1, ns2, allocs, yields } in &rows {
        println!("{name:<36} {ns1:>8.1} {ns2:>8.1} {allocs:>7.2} {yields:>7.3}");
    }
    Ok(())
}

fn json(Row { name, ns1, ns2, allocs, yields }: &Row) -> String {
    format!(
        r#"{{"name": "{name}", "ns1": {ns1:.2}, "ns2": {ns2:.2}, "allocs": {allocs:.3}, "yields": {yields:.3}}}"#
    )
}

fn breaker() -> BreakerBuilder<ErrorsOnly> {
    BreakerLayer::builder().classify(ErrorsOnly)
}

fn retry() -> Result<RetryLayer<ErrorsOnly>, ConfigError> {
    RetryLayer::builder().classify(ErrorsOnly).build()
}

fn ours() -> Result<Vec<Row>, BoxError> {
    let counting = || breaker().over(Over::Calls(100));
    let refused = counting().mode(Mode::ForcedOpen).build()?;
    let route = || -> Result<_, ConfigError> {
        Ok(ServiceBuilder::new().layer(retry()?).layer(counting().build()?).service(Echo::default()))
    };
    let fallback = |route| FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("second", route));
    let stack =
        FallbackLayer::builder().classify(ErrorsOnly).route(Route::new("second", route()?)).build()?;
    Ok(vec![
        measure("bare", &Echo::default()),
        measure("breaker closed", &counting().build()?.layer(Echo::default())),
        measure("breaker failing", &counting().build()?.layer(Echo::failing(20))),
        measure(
            "breaker timed",
            &breaker().slow_after(Duration::from_secs(4)).build()?.layer(Echo::default()),
        ),
        measure("breaker refused", &refused.layer(Echo::default())),
        measure("retry", &retry()?.layer(Echo::default())),
        measure("fallback", &fallback(Echo::default()).build()?.layer(Echo::default())),
        measure("stack without a timeout", &stack.layer(route()?)),
    ])
}

fn peers() -> Result<Vec<Row>, BoxError> {
    let breaker = tower_resilience::circuitbreaker::CircuitBreakerLayer::builder()
        .sliding_window_size(100)
        .build()
        .map_err(|err| err.to_string())?;
    let retry = ServiceBuilder::new().retry(Budgeted::default()).service(Echo::default());
    Ok(vec![
        measure("tower-resilience breaker closed", &breaker.layer(Echo::default())),
        measure("tower retry with its budget", &retry),
    ])
}

/// tower leaves the policy to its users; this is the usual one with its own budget.
#[derive(Clone, Default)]
struct Budgeted(std::sync::Arc<TpsBudget>);

impl Policy<u64, u64, BoxError> for Budgeted {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut u64, result: &mut Result<u64, BoxError>) -> Option<Ready<()>> {
        if result.is_ok() {
            self.0.deposit();
            return None;
        }
        self.0.withdraw().then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &u64) -> Option<u64> {
        Some(*request)
    }
}
