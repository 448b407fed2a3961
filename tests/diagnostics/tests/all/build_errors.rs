//! What only a value can be wrong about is refused at `build`, with the names of the builder and of the field, the value, and what
//! would be right.

use std::time::Duration;

use diagnostics::*;

use breaker_layer::{BreakerLayer, engine::Probes};
use budget_layer::BudgetLayer;
use failsoft::presets::{HostedModel, Server, Tool};
use failsoft_core::ConfigError;
use fallback_layer::{FallbackLayer, Route, cache::Cache};
use llm_layer::LlmLayer;
use retry_layer::{HedgeLayer, RetryLayer};
use stream_layer::{AnyContent, StreamLayer};
use validate_layer::ValidateLayer;

fn says<T>(built: Result<T, ConfigError>, text: &str) {
    assert_eq!(built.err().map(|error| error.to_string()).as_deref(), Some(text));
}

#[test]
fn the_field_the_value_and_the_range_are_named() {
    says(
        BreakerLayer::builder().failure_rate(1.5).build(),
        "BreakerLayer: `failure_rate` is 1.5, expected 0 to 1",
    );
    says(
        BreakerLayer::builder().probes(Probes::Successes { probes: 2, to_close: 3 }).build(),
        "BreakerLayer: `probes (to_close)` is 3, expected 1 to 2",
    );
    says(
        BudgetLayer::builder().soft_line(1.5).build(),
        "BudgetLayer: `soft_line` is 1.5, expected a number from 0 to 1",
    );
    says(
        FallbackLayer::builder().route(Route::new("a", ())).route(Route::new("a", ())).build(),
        "FallbackLayer: `route` is a, expected a name that no other route has",
    );
    says(
        Cache::builder().build().map(drop),
        "Cache: `scope` is none, expected a function that names the tenant, or `shared_by_all`",
    );
    says(
        LlmLayer::builder().idle(Duration::ZERO).build(),
        "LlmLayer: `idle` is 0, expected more than 0, or `None` for no limit",
    );
    says(
        RetryLayer::builder().attempt_timeout(Duration::ZERO).build(),
        "RetryLayer: `attempt_timeout` is 0s, expected a time above zero",
    );
    says(
        HedgeLayer::builder().quantile(2.0).build(),
        "HedgeLayer: `quantile` is 2, expected a number from 0.5 to 0.999",
    );
    says(
        StreamLayer::builder(AnyContent).cold_grace(0.5).build(),
        "StreamLayer: `cold_grace` is 0.5, expected from 1 to 100",
    );
    says(
        ValidateLayer::builder().max_body(0).build(),
        "ValidateLayer: `max_body` is 0, expected at least 1 byte",
    );
    says(HostedModel::new("").build(), "RetryLayer: `target` is blank, expected a name");
    says(Tool::new("").build(), "RetryLayer: `target` is blank, expected a name");
    says(Server::new("").build(), "BreakerLayer: `name` is blank, expected a name");
}
