//! The config of a case as the engine's settings.

use std::time::Duration;

use breaker_layer::engine::{Over, Probes, Settings, SettingsBuilder, TripOn};
use serde_json::Value;

use crate::case::Fields;

/// The longest that the engine takes: for what the dialect leaves without a bound.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

pub(super) fn settings(config: &Value) -> Result<Settings, String> {
    let config = Fields::of(config, "config")?;
    let open_time = config.need("open_ms", millis)?;
    // the dialect has no soft failures, jitter or growth but where it says so
    let mut builder = Settings::builder().soft_alone_may_not_open().jitter(0.0).max_open_time(YEAR);
    builder = builder.over(over(config.need("window", Some)?)?).min_calls(config.need("min_calls", count)?);
    builder = rules(builder, config.need("trip_any", Value::as_array)?)?;
    builder = builder.trip_on(config.need("trip_on", |value| match value.as_str()? {
        "any_outcome" => Some(TripOn::AnyOutcome),
        "failure_only" => Some(TripOn::FailureOnly),
        _ => None,
    })?);
    builder = builder.slow_after(config.read("slow_call_gt_ms", millis)?);
    builder = match config.get("open_backoff") {
        None => builder.open_time(open_time).open_time_factor(1.0),
        Some(backoff) => open_backoff(builder, backoff, open_time)?,
    };
    builder = half_open(builder, config.need("half_open", Some)?)?;
    config.all_known()?;
    builder.build().map_err(|problem| problem.to_string())
}

fn over(window: &Value) -> Result<Over, String> {
    let window = Fields::of(window, "config.window")?;
    let over = match window.need("kind", Value::as_str)? {
        "count" => Over::Calls(window.need("size", count)?),
        "time" => {
            let (span, bucket) =
                (window.need("span_ms", Value::as_u64)?, window.need("bucket_ms", Value::as_u64)?);
            if bucket == 0 || span % bucket != 0 {
                return Err(format!("config.window: {span} ms in buckets of {bucket} ms"));
            }
            let buckets = u32::try_from(span / bucket).map_err(|problem| problem.to_string())?;
            Over::Time { span: Duration::from_millis(span), buckets }
        }
        "none" => Over::SinceEntered,
        kind => return Err(format!("config.window: unknown kind `{kind}`")),
    };
    window.all_known()?;
    Ok(over)
}

fn rules(builder: SettingsBuilder, rules: &[Value]) -> Result<SettingsBuilder, String> {
    rules.iter().try_fold(builder.failure_rate(None), |builder, rule| {
        let rule = Fields::of(rule, "config.trip_any")?;
        let failure_rate = rule.read("failure_rate_pct_ge", Value::as_f64)?;
        let slow_rate = rule.read("slow_rate_pct_ge", Value::as_f64)?;
        let failures = rule.read("failures_ge", count)?;
        let consecutive = rule.read("consecutive_failures_ge", count)?;
        rule.all_known()?;
        Ok(match (failure_rate, slow_rate, failures, consecutive) {
            (Some(percent), None, None, None) => builder.failure_rate(percent / 100.0),
            (None, Some(percent), None, None) => builder.slow_rate(percent / 100.0),
            (None, None, Some(failures), None) => builder.failures(failures),
            (None, None, None, Some(failures)) => builder.consecutive_failures(failures),
            _ => return Err("config.trip_any: a condition has one key".to_owned()),
        })
    })
}

fn open_backoff(
    builder: SettingsBuilder,
    backoff: &Value,
    open_time: Duration,
) -> Result<SettingsBuilder, String> {
    let backoff = Fields::of(backoff, "config.open_backoff")?;
    let builder = match backoff.need("by", Value::as_str)? {
        "consecutive_opens" => {
            let initial = backoff.read("initial_ms", millis)?.unwrap_or(open_time);
            builder.open_time(initial).open_time_factor(backoff.need("factor", Value::as_f64)?)
        }
        "half_open_attempts" => {
            let times = backoff.need("ms", Value::as_array)?;
            let times: Option<Vec<_>> = times.iter().map(millis).collect();
            builder.open_times(times.ok_or("config.open_backoff: ms is a list of milliseconds")?)
        }
        by => return Err(format!("config.open_backoff: unknown `by` {by}")),
    };
    backoff.all_known()?;
    Ok(builder)
}

fn half_open(builder: SettingsBuilder, half_open: &Value) -> Result<SettingsBuilder, String> {
    let half_open = Fields::of(half_open, "config.half_open")?;
    let probes = half_open.need("probes", count)?;
    let to_open = half_open.need("failures_to_open", count)?;
    let mut builder = builder.probes(Probes::Failures { probes, to_open });
    if let Some(slow) = half_open.read("slow_to_open", count)? {
        builder = builder.slow_probes_to_open(slow);
    }
    builder = builder.lease(half_open.read("lease_ms", millis)?.unwrap_or(YEAR));
    half_open.all_known()?;
    Ok(builder)
}

fn count(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

fn millis(value: &Value) -> Option<Duration> {
    value.as_u64().map(Duration::from_millis)
}
