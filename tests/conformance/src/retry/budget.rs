//! Budgets and gRPC's throttle.

use std::sync::Barrier;
use std::time::Duration;

use failsoft_core::Class;
use failsoft_core::advice::{Pushback, parse_pushback};
use retry_layer::RetryBudget;
use serde_json::Value;

use super::{Checks, Parts, duration, on_a_test_clock};
use crate::case::{Difference, Fields};

/// Out of the way.
const CAP: f64 = 1e9;

pub(super) fn ratio(parts: &Parts<'_>) -> Result<Vec<Difference>, String> {
    on_a_test_clock(run_ratio(parts))?
}

async fn run_ratio(parts: &Parts<'_>) -> Result<Vec<Difference>, String> {
    let budget = RetryBudget::builder()
        .ttl(parts.config.need("ttl_ms", duration)?)
        .min_per_sec(parts.config.need("min_per_sec", Value::as_f64)?)
        .ratio(parts.config.need("percent", Value::as_f64)?)
        .cap(CAP)
        .build()
        .map_err(|problem| problem.to_string())?;
    let mut checks = Checks::default();
    if let Some(initial) = parts.expect.read("initial_balance", Value::as_f64)? {
        checks.near("initial_balance", initial, budget.balance(), 1e-6);
    }
    let (mut granted, mut now) = (0, Duration::ZERO);
    for (index, step) in parts.steps.iter().enumerate() {
        let fields = Fields::of(step, format!("step {index}"))?;
        let t = fields.read("t", duration)?.unwrap_or(now);
        tokio::time::advance(t.saturating_sub(now)).await;
        now = t;
        granted += act(&fields, &budget, &mut checks)?;
        fields.all_known()?;
    }
    let wanted = parts.expect.need("granted", Value::as_f64)?;
    let tolerance = parts.expect.read("tolerance", Value::as_f64)?.unwrap_or(0.0);
    checks.near("granted", wanted, granted as f64, tolerance);
    Ok(checks.0)
}

fn act(fields: &Fields<'_>, budget: &RetryBudget, checks: &mut Checks) -> Result<u64, String> {
    let what = fields.need("do", Value::as_str)?;
    let times = fields.read("x", Value::as_u64)?.unwrap_or(1);
    let mut granted = 0;
    match what {
        "deposit" => (0..times).for_each(|_| budget.on_request()),
        "deposit_then_try_withdraw" => {
            for _ in 0..times {
                budget.on_request();
                granted += u64::from(withdraw(budget, checks));
            }
        }
        "withdraw_until_refused" => {
            while withdraw(budget, checks) {
                granted += 1;
            }
        }
        "try_withdraw_concurrently" => granted = race(fields, budget)?,
        _ => return Err(format!("unknown step `{what}`")),
    }
    Ok(granted)
}

fn withdraw(budget: &RetryBudget, checks: &mut Checks) -> bool {
    let granted = budget.try_withdraw(Class::Transient);
    if !granted {
        let left = budget.balance();
        checks.check("balance after a refusal", (0.0..1.0).contains(&left), "below 1", left);
    }
    granted
}

fn race(fields: &Fields<'_>, budget: &RetryBudget) -> Result<u64, String> {
    let each = fields.need("each", Value::as_u64)?;
    let threads = fields.need("threads", Value::as_u64)?;
    let start = Barrier::new(usize::try_from(threads).map_err(|problem| problem.to_string())?);
    let withdraw = || {
        start.wait();
        (0..each).filter(|_| budget.try_withdraw(Class::Transient)).count() as u64
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(withdraw)).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())).sum()
    })
}

pub(super) fn throttle(parts: &Parts<'_>) -> Result<Vec<Difference>, String> {
    let max = parts.config.need("max_tokens", Value::as_f64)?;
    let ratio = parts.config.need("token_ratio", Value::as_f64)?;
    let throttle = RetryBudget::grpc_throttle(max, ratio).map_err(|problem| problem.to_string())?;
    let mut checks = Checks::default();
    for (index, step) in parts.steps.iter().enumerate() {
        let fields = Fields::of(step, format!("step {index}"))?;
        fields.ignore(&["t"]);
        let what = fields.need("do", Value::as_str)?;
        let mut after = After::default();
        for _ in 0..fields.read("x", Value::as_u64)?.unwrap_or(1) {
            after = throttle_step(what, &fields, &throttle)?;
        }
        let at = format!("step {index} ({what})");
        if let Some(tokens) = fields.read("tokens", Value::as_f64)? {
            checks.near(format!("{at} tokens"), tokens, throttle.balance(), 1e-3);
        }
        if let Some(wanted) = fields.read("want_retry_allowed", Value::as_bool)? {
            let got = after.allowed;
            checks.check(format!("{at} retry allowed"), got == Some(wanted), wanted, format!("{got:?}"));
        }
        if let Some(wanted) = fields.get("want_delay_ms").filter(|wanted| !wanted.is_null()) {
            let wanted = duration(wanted).ok_or_else(|| format!("{at}: want_delay_ms cannot be {wanted}"))?;
            let got = after.delay;
            checks.check(
                format!("{at} delay"),
                got == Some(wanted),
                format!("{wanted:?}"),
                format!("{got:?}"),
            );
        }
        fields.all_known()?;
    }
    Ok(checks.0)
}

#[derive(Default)]
struct After {
    allowed: Option<bool>,
    delay: Option<Duration>,
}

fn throttle_step(what: &str, fields: &Fields<'_>, throttle: &RetryBudget) -> Result<After, String> {
    let mut after = After::default();
    match what {
        "success" => throttle.on_success(),
        "fail_not_retryable" => after.allowed = Some(false),
        "fail_retryable" => after.allowed = Some(throttle.try_withdraw(Class::Transient)),
        "pushback" => {
            let value = fields.need("value", Some)?;
            // A number stands for its text.
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let allowed = throttle.try_withdraw(Class::Transient);
            match parse_pushback(&text) {
                Pushback::After(delay) => (after.allowed, after.delay) = (Some(allowed), Some(delay)),
                Pushback::Stop => after.allowed = Some(false),
            }
        }
        _ => return Err(format!("unknown step `{what}`")),
    }
    Ok(after)
}
