//! Whole calls through a `RetryLayer`.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use failsoft_core::{Backoff, Call, Class, ErrorsOnly, Fault, Next};
use retry_layer::{RetryBudget, RetryLayer};
use serde_json::Value;
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};

use super::{Checks, Parts, on_a_test_clock};
use crate::case::{Difference, Fields};

/// What the upstream fails with: a retryable error that can be told from every other.
#[derive(Debug)]
struct UpstreamError(Fault);

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the original upstream error")
    }
}

impl std::error::Error for UpstreamError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

pub(super) fn run(parts: &Parts<'_>) -> Result<Vec<Difference>, String> {
    on_a_test_clock(replay(parts))?
}

async fn replay(parts: &Parts<'_>) -> Result<Vec<Difference>, String> {
    let tokens = parts.config.need("budget", Value::as_f64)?;
    let max_attempts = parts.config.need("max_attempts", Value::as_u64)?;
    let budget = RetryBudget::builder().ratio(0.0).min_per_sec(0.0).initial(tokens).build();
    let further = u32::try_from(max_attempts.saturating_sub(1)).unwrap_or(u32::MAX);
    let layer = RetryLayer::builder()
        .classify(ErrorsOnly)
        .max_retries(further)
        .backoff(Backoff::fixed(Duration::from_secs(1)))
        .budget(budget.map_err(|problem| problem.to_string())?)
        .build()
        .map_err(|problem| problem.to_string())?;

    let mut checks = Checks::default();
    let wanted = parts.expect.need("attempts", Value::as_u64)?;
    // Both are for people: every flow is checked for its own error, and for what the trail says.
    parts.expect.ignore(&["error", "hint"]);
    for (index, step) in parts.steps.iter().enumerate() {
        let fields = Fields::of(step, format!("step {index}"))?;
        fields.ignore(&["t"]);
        let what = fields.need("do", Value::as_str)?;
        if what != "call_fails" {
            return Err(format!("unknown step `{what}`"));
        }
        fields.all_known()?;

        let attempts = AtomicU64::new(0);
        let upstream = service_fn(|()| {
            attempts.fetch_add(1, Relaxed);
            std::future::ready(Err::<(), _>(UpstreamError(Fault::new(Class::Overloaded, "upstream"))))
        });
        let (call, began) = (Call::begin(), Instant::now());
        let outcome = call.scope(layer.layer(upstream).oneshot(())).await;
        let made = attempts.load(Relaxed);
        checks.check(format!("step {index} attempts"), made == wanted, wanted, made);
        let own = matches!(&outcome, Err(error) if error.is::<UpstreamError>());
        checks.check(format!("step {index} error"), own, "the upstream's own", format!("{outcome:?}"));
        let why = call.trail().attempts().last().map(|last| last.next);
        let why_wanted = if made < max_attempts { Next::BudgetEmpty } else { Next::AttemptsSpent };
        checks.check(
            format!("step {index} trail"),
            why == Some(why_wanted),
            format!("{why_wanted:?}"),
            format!("{why:?}"),
        );
        if made == 1 {
            let waited = began.elapsed();
            checks.check(format!("step {index} wait"), waited.is_zero(), "none", format!("{waited:?}"));
        }
    }
    Ok(checks.0)
}
