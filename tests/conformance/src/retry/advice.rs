//! What a server says about the next attempt, from its headers to the wait before a `RetryLayer`'s second attempt.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use failsoft_core::advice::wall_clock;
use failsoft_core::{Backoff, Call, CallOptions, Jitter};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::Empty;
use retry_layer::{RetryBuilder, RetryLayer};
use serde_json::Value;
use tower::{Layer, ServiceExt, service_fn};

use super::{Checks, Parts, bounds, duration, in_ms, on_a_test_clock};
use crate::case::{Difference, Fields};

/// Our own back-off, where a case does not say: shorter than any advice, and no round number.
const OWN: Duration = Duration::from_millis(237);

pub(super) fn run(parts: &Parts<'_>) -> Result<Vec<Difference>, String> {
    on_a_test_clock(replay(parts))?
}

async fn replay(parts: &Parts<'_>) -> Result<Vec<Difference>, String> {
    let own = parts.config.read("own_backoff_ms", duration)?.unwrap_or(OWN);
    let format = parts.config.read("format", Value::as_str)?;
    let builder = RetryLayer::builder()
        .max_retries(1)
        .backoff(Backoff::fixed(own).jitter(Jitter::None))
        .advice_jitter(0.0);
    let honoured = parts.config.read("max_honoured_ms", duration)?;
    let honoured = honoured.or(parts.config.read("max_ms", duration)?);
    let builder = honoured.into_iter().fold(builder, RetryBuilder::max_advice);
    let left = parts.config.read("deadline_left_ms", duration)?;
    let layer = builder.build().map_err(|problem| problem.to_string())?;

    let mut checks = Checks::default();
    for (index, step) in parts.steps.iter().enumerate() {
        let fields = Fields::of(step, format!("step {index}"))?;
        let status = fields
            .read("status", |status| StatusCode::from_u16(u16::try_from(status.as_u64()?).ok()?).ok())?;
        let headers = headers(fields.need("header", Some)?, format, wall_clock())?;
        fields.all_known()?;

        let attempts = AtomicU64::new(0);
        let upstream = service_fn(|_: Request<String>| {
            let mut response = Response::new(Empty::<Bytes>::new());
            if attempts.fetch_add(1, Relaxed) == 0 {
                *response.status_mut() = status.unwrap_or(StatusCode::TOO_MANY_REQUESTS);
                response.headers_mut().clone_from(&headers);
            }
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let options = left.into_iter().fold(Call::options(), CallOptions::timeout);
        let call = options.begin();
        let outcome = call.scope(layer.layer(upstream).oneshot(Request::new(String::new()))).await;
        let made = attempts.load(Relaxed);
        let delay = call.trail().attempts().first().and_then(|first| first.delay);
        check(&parts.expect, own, made, delay, &mut checks)?;
        let own_outcome = outcome.is_ok_and(|response| response.status().is_success() == (made > 1));
        checks.check(format!("step {index} outcome"), own_outcome, "the upstream's own", "another");
    }
    Ok(checks.0)
}

fn check(
    expect: &Fields<'_>,
    own: Duration,
    attempts: u64,
    delay: Option<Duration>,
    checks: &mut Checks,
) -> Result<(), String> {
    let got = delay.map_or(f64::NAN, in_ms);
    if let Some(wanted) = expect.read("retry", Value::as_bool)? {
        checks.check("retry", wanted == (attempts > 1), wanted, format!("{attempts} attempts"));
    }
    if let Some(wanted) = expect.read("delay_ms", Value::as_f64)? {
        checks.near("delay_ms", wanted, got, 1e-3);
    }
    if let Some((from, to)) = expect.read("delay_in_ms", bounds)? {
        checks.check("delay_in_ms", (from..to).contains(&got), format!("[{from}, {to})"), got);
    }
    if let Some(wanted) = expect.read("delay", Value::as_str)? {
        if wanted != "own back-off" {
            return Err(format!("expect: unknown delay `{wanted}`"));
        }
        checks.near("own back-off", in_ms(own), got, 1e-6);
    }
    if expect.read("no_busy_loop", Value::as_bool)? == Some(true) {
        let calm = attempts == 1 || delay >= Some(Duration::from_millis(1));
        checks.check("no_busy_loop", calm, "a wait", format!("{delay:?}"));
    }
    // Whoever gets here has not panicked.
    expect.ignore(&["no_panic"]);
    Ok(())
}

fn headers(value: &Value, format: Option<&str>, now: SystemTime) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let object = value.as_object().ok_or_else(|| "header is not an object".to_owned())?;
    for (name, value) in object {
        let values = match value {
            Value::Null => Vec::new(),
            Value::Array(values) => values.iter().collect(),
            value => vec![value],
        };
        for value in values {
            // A number stands for its text.
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let text = made(&text, name, format, now).unwrap_or(text);
            let unreadable = |problem: http::Error| format!("header {name}: {problem}");
            let value =
                HeaderValue::from_bytes(text.as_bytes()).map_err(|problem| unreadable(problem.into()))?;
            let name =
                HeaderName::from_bytes(name.as_bytes()).map_err(|problem| unreadable(problem.into()))?;
            headers.append(name, value);
        }
    }
    Ok(headers)
}

/// A value that depends on the time: `now-1s`, `HTTP-date 7 s in the future`.
fn made(text: &str, header: &str, format: Option<&str>, now: SystemTime) -> Option<String> {
    if let Some(offset) = text.strip_prefix("now") {
        let at = shifted(now, offset.starts_with('-'), offset.trim_start_matches(['+', '-']))?;
        let usual = if header.eq_ignore_ascii_case("retry-after") { "http-date" } else { "unix_timestamp" };
        return written(at, format.filter(|format| *format != "seconds").unwrap_or(usual));
    }
    let (rest, past) = match text.strip_suffix("in the future") {
        Some(rest) => (rest, false),
        None => (text.strip_suffix("in the past").or_else(|| text.strip_suffix("ago"))?, true),
    };
    // The amount is the last number; what stands before it names the form.
    let rest = rest.trim_end();
    let amount = rest.rfind(|c: char| c.is_ascii_digit()).and_then(|end| {
        rest.get(..end)?.rfind(|c: char| !c.is_ascii_digit() && c != '.').map(|before| before + 1)
    })?;
    written(shifted(now, past, rest.get(amount..)?)?, rest.get(..amount)?)
}

fn shifted(now: SystemTime, past: bool, amount: &str) -> Option<SystemTime> {
    let unit = amount.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(amount.len());
    let scale = match amount.get(unit..)?.trim() {
        "ms" => 1e-3,
        "" | "s" | "seconds" => 1.0,
        "m" | "min" | "minutes" => 60.0,
        "h" | "hours" => 3_600.0,
        "d" | "days" => 86_400.0,
        _ => return None,
    };
    let number = amount.get(..unit)?;
    let by = if number.is_empty() { 0.0 } else { number.parse::<f64>().ok()? };
    let by = Duration::try_from_secs_f64(by * scale).ok()?;
    if past { now.checked_sub(by) } else { now.checked_add(by) }
}

fn written(at: SystemTime, form: &str) -> Option<String> {
    let form = form.to_ascii_lowercase();
    let since = at.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let formatted = |how| Some(jiff::Timestamp::try_from(at).ok()?.strftime(how).to_string());
    Some(if form.contains("850") {
        formatted("%A, %d-%b-%y %H:%M:%S GMT")?
    } else if form.contains("asctime") {
        formatted("%a %b %e %H:%M:%S %Y")?
    } else if form.contains("http") || form.contains("imf") {
        httpdate::fmt_http_date(at)
    } else if form.contains("3339") {
        jiff::Timestamp::try_from(at).ok()?.to_string()
    } else if form.contains("ms") || form.contains("milli") {
        since.as_millis().to_string()
    } else if form.contains("unix") || form.contains("epoch") {
        since.as_secs().to_string()
    } else {
        return None;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_depend_on_the_time_are_made() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        let made = |text: &str| made(text, "retry-after", None, now);
        assert_eq!(made("HTTP-date 7 s in the future").as_deref(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!(made("RFC 850 date 7 s in the future").as_deref(), Some("Sunday, 06-Nov-94 08:49:37 GMT"));
        assert_eq!(made("asctime date 7 s in the future").as_deref(), Some("Sun Nov  6 08:49:37 1994"));
        assert_eq!(made("HTTP-date 1 h in the past").as_deref(), Some("Sun, 06 Nov 1994 07:49:30 GMT"));
        assert_eq!(made("now+7s").as_deref(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!(made("121"), None);
    }
}
