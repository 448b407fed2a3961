//! Back-off: shapes, bounds and jitter.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use failsoft_core::backoff::Rng;
use failsoft_core::{Backoff, Jitter};
use serde_json::Value;

use super::{Checks, Parts, bounds as pair, duration, in_ms};
use crate::case::{Difference, Fields};

/// Two delays are the same to a nanosecond.
const SAME_MS: f64 = 1e-6;

pub(super) fn nominal(parts: &Parts<'_>) -> Result<Vec<Difference>, String> {
    parts.no_steps()?;
    let backoff = backoff(&parts.config)?;
    let mut checks = Checks::default();
    for (attempt, wanted) in (1u32..).zip(parts.expect.need("delays_ms", Value::as_array)?) {
        let wanted = wanted.as_f64().ok_or_else(|| format!("delays_ms: {wanted} is no number"))?;
        let (_, longest) = backoff.range(attempt, Duration::ZERO);
        for got in [backoff.nominal(attempt), longest] {
            checks.near(format!("attempt {attempt}"), wanted, in_ms(got), SAME_MS);
        }
    }
    Ok(checks.0)
}

/// A place in the range, given as the random number that leads there.
pub(super) fn place(parts: &Parts<'_>) -> Result<Vec<Difference>, String> {
    parts.no_steps()?;
    let backoff = backoff(&parts.config)?;
    // Counted from 0 here.
    let attempt = parts.config.need("attempt", attempt)?.saturating_add(1);
    let random = parts.config.need("random", Value::as_f64)?;
    let mut checks = Checks::default();
    let got = in_ms(backoff.delay_at(attempt, Duration::ZERO, random));
    checks.near("delay_ms", parts.expect.need("delay_ms", Value::as_f64)?, got, SAME_MS);
    Ok(checks.0)
}

pub(super) fn bounds(parts: &Parts<'_>) -> Result<Vec<Difference>, String> {
    parts.no_steps()?;
    let backoff = backoff(&parts.config)?;
    let rng = Rng::seeded(0x5eed);
    let mut checks = Checks::default();
    let length = parts.config.read("length", Value::as_u64)?;
    let attempts = match parts.config.read("attempts", Value::as_array)? {
        Some(list) => list
            .iter()
            .map(|value| attempt(value).ok_or_else(|| format!("attempts: {value} is no attempt")))
            .collect::<Result<_, _>>()?,
        None => vec![parts.config.read("attempt", attempt)?.unwrap_or(1)],
    };
    let samples = parts.config.read("samples", Value::as_u64)?.unwrap_or(1_000);
    let drawn: Vec<Duration> = match length {
        Some(length) => chain(&backoff, &rng, length),
        None => attempts
            .iter()
            .flat_map(|attempt| (0..samples).map(|_| backoff.delay(*attempt, Duration::ZERO, &rng)))
            .collect(),
    };
    check_limits(&parts.expect, &drawn, &mut checks)?;
    if parts.expect.read("monotone_upper_bound", Value::as_bool)? == Some(true) {
        let bounds: Vec<_> =
            attempts.iter().map(|attempt| backoff.range(*attempt, Duration::ZERO).1).collect();
        checks.check("monotone_upper_bound", bounds.is_sorted(), "growing", format!("{bounds:?}"));
    }
    if let Some(most) = parts.expect.read("max_ns", Value::as_u64)? {
        for attempt in &attempts {
            let took = fastest(|| backoff.delay(*attempt, Duration::ZERO, &rng));
            checks.check(
                format!("attempt {attempt} max_ns"),
                took <= Duration::from_nanos(most),
                most,
                took.as_nanos(),
            );
        }
    }
    check_chain(parts, &drawn, &mut checks)?;
    // Whoever gets here has not panicked.
    parts.expect.ignore(&["no_panic"]);
    Ok(checks.0)
}

fn check_limits(expect: &Fields<'_>, drawn: &[Duration], checks: &mut Checks) -> Result<(), String> {
    let drawn_ms = || drawn.iter().map(|delay| in_ms(*delay));
    let least = drawn_ms().fold(f64::INFINITY, f64::min);
    let most = drawn_ms().fold(0.0, f64::max);
    if let Some(min) = expect.read("min_ms", Value::as_f64)? {
        checks.check("min_ms", least >= min, min, least);
    }
    if let Some(min) = expect.read("min_exclusive_ms", Value::as_f64)? {
        checks.check("min_exclusive_ms", least > min, min, least);
    }
    let max = expect.read("max_ms", Value::as_f64)?;
    if let Some(max) = max {
        checks.check("max_ms", most <= max, max, most);
    }
    if let Some(exact) = expect.read("exact_ms", Value::as_f64)? {
        checks.near("exact_ms", exact, least, SAME_MS);
        checks.near("exact_ms", exact, most, SAME_MS);
    }
    if let Some(share) = expect.read("share_exactly_at_max_at_most", Value::as_f64)? {
        let max = max.unwrap_or(most);
        let got = drawn_ms().filter(|delay| *delay >= max).count() as f64 / drawn.len().max(1) as f64;
        checks.check("share_exactly_at_max_at_most", got <= share, share, got);
    }
    if let Some(least) = expect.read("distinct_at_least", Value::as_u64)? {
        let got = drawn.iter().collect::<BTreeSet<_>>().len();
        checks.check("distinct_at_least", got as u64 >= least, least, got);
    }
    Ok(())
}

/// Decorrelated delays: each depends on the one before.
fn check_chain(parts: &Parts<'_>, drawn: &[Duration], checks: &mut Checks) -> Result<(), String> {
    if let Some((from, to)) = parts.expect.read("first_in_ms", pair)? {
        let got = drawn.first().copied().map_or(f64::NAN, in_ms);
        checks.check("first_in_ms", (from..=to).contains(&got), format!("{from} to {to}"), got);
    }
    let Some(each) = parts.expect.get("each_in") else { return Ok(()) };
    let base = parts.config.read("base_ms", Value::as_f64)?.unwrap_or(0.0);
    let max = parts.config.read("max_ms", Value::as_f64)?.unwrap_or(f64::INFINITY);
    for (index, two) in drawn.windows(2).enumerate() {
        let [previous, delay] = [in_ms(two[0]), in_ms(two[1])];
        let name = |name: &str| match name {
            "base" | "base_ms" | "start" | "initial" => Some(base),
            "max" | "max_ms" | "cap" => Some(max),
            "prev" | "previous" => Some(previous),
            _ => None,
        };
        let (from, to) = range::read(each, &name).ok_or_else(|| format!("each_in cannot be {each}"))?;
        let holds = delay >= from - SAME_MS && delay <= to + SAME_MS;
        checks.check(format!("each_in, delay {}", index + 2), holds, format!("{from} to {to}"), delay);
    }
    Ok(())
}

fn chain(backoff: &Backoff, rng: &Rng, length: u64) -> Vec<Duration> {
    let mut previous = Duration::ZERO;
    (1..=length)
        .map(|attempt| {
            previous = backoff.delay(u32::try_from(attempt).unwrap_or(u32::MAX), previous, rng);
            previous
        })
        .collect()
}

/// The time without the noise of other processes.
fn fastest<T>(run: impl Fn() -> T) -> Duration {
    let once = |_| {
        let began = now();
        std::hint::black_box(run());
        began.elapsed()
    };
    (0..20).map(once).min().unwrap_or_default()
}

#[allow(clippy::disallowed_methods, reason = "how long a computation takes is measured, not simulated")]
fn now() -> Instant {
    Instant::now()
}

fn backoff(config: &Fields<'_>) -> Result<Backoff, String> {
    let kind = config.need("type", Value::as_str)?;
    let initial = || config.need("initial_ms", duration);
    let (shape, jitter) = match kind {
        "fixed" | "constant" => (Backoff::fixed(initial()?), Some(Jitter::None)),
        "linear" => {
            let step = config.read("step_ms", duration)?;
            (Backoff::linear(initial()?, step.map_or_else(&initial, Ok)?), Some(Jitter::None))
        }
        "exponential" => (Backoff::exponential(initial()?), Some(Jitter::None)),
        "exponential_full_jitter" => (Backoff::exponential(initial()?), None),
        "decorrelated" => (Backoff::decorrelated(config.need("base_ms", duration)?), None),
        _ => return Err(format!("config: unknown type `{kind}`")),
    };
    let spread = config.read("jitter_ms", duration)?.map(Jitter::Spread);
    let jitter = match config.get("jitter") {
        None => spread.or(jitter),
        Some(Value::Bool(false)) => Some(Jitter::None),
        Some(Value::Bool(true)) => None,
        Some(value) => match value.as_str() {
            Some("any") => None,
            Some("full") => Some(Jitter::Full),
            Some("equal") => Some(Jitter::Equal),
            Some(text) => Some(proportional(text).ok_or_else(|| format!("config: unknown jitter `{text}`"))?),
            None => return Err(format!("config: jitter cannot be {value}")),
        },
    };
    let factor = config.read("factor", Value::as_f64)?;
    let max = config.read("max_ms", duration)?;
    let backoff = factor.into_iter().fold(shape, Backoff::factor);
    let backoff = jitter.into_iter().fold(backoff, Backoff::jitter);
    // Without a cap of its own a case has none.
    let backoff = backoff.max(max.unwrap_or(Duration::MAX));
    backoff.check().map_err(|problem| problem.to_string())?;
    Ok(backoff)
}

/// `+-50%`
fn proportional(text: &str) -> Option<Jitter> {
    let percent: f64 = text.strip_prefix("+-")?.strip_suffix('%')?.trim().parse().ok()?;
    Some(Jitter::Proportional(percent / 100.0))
}

/// Cases count further than a `u32` does.
fn attempt(value: &Value) -> Option<u32> {
    value.as_u64().map(|attempt| u32::try_from(attempt).unwrap_or(u32::MAX))
}

mod range {
    //! `[base, min(max, 3*prev)]`, as two numbers, two texts or one.

    use serde_json::Value;

    pub(super) type Names<'a> = &'a dyn Fn(&str) -> Option<f64>;

    pub(super) fn read(value: &Value, names: Names<'_>) -> Option<(f64, f64)> {
        let end = |value: &Value| value.as_f64().or_else(|| expression(value.as_str()?, names));
        match value {
            Value::Array(ends) => match ends.as_slice() {
                [from, to] => Some((end(from)?, end(to)?)),
                _ => None,
            },
            Value::String(text) => {
                let inner = text.trim().strip_prefix(['[', '('])?.strip_suffix([']', ')'])?;
                let (from, to) = split(inner, ',')?;
                Some((expression(from, names)?, expression(to, names)?))
            }
            _ => None,
        }
    }

    fn expression(text: &str, names: Names<'_>) -> Option<f64> {
        let text = text.trim();
        for (name, apply) in [("min", f64::min as fn(f64, f64) -> f64), ("max", f64::max)] {
            if let Some(rest) = text.strip_prefix(name).and_then(|rest| rest.trim().strip_prefix('(')) {
                let (a, b) = split(rest.strip_suffix(')')?, ',')?;
                return Some(apply(expression(a, names)?, expression(b, names)?));
            }
        }
        if let Some((a, b)) = split(text, '*') {
            return Some(expression(a, names)? * expression(b, names)?);
        }
        if let Some((a, b)) = text.split_once(' ') {
            // `3 prev`
            return Some(expression(a, names)? * expression(b, names)?);
        }
        text.parse().ok().or_else(|| names(text))
    }

    /// Splits at the first separator that is not inside parentheses.
    fn split(text: &str, separator: char) -> Option<(&str, &str)> {
        let mut depth = 0;
        let at = text.find(|c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == separator && depth == 0
        })?;
        Some((text.get(..at)?, text.get(at + separator.len_utf8()..)?))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn ranges_are_read_in_every_form() {
            let names = |name: &str| (name == "prev").then_some(10.0);
            for text in ["[1, min(20, 3*prev)]", "[1, min(20, prev * 3))", "[1, min(3 prev, 20)]"] {
                assert_eq!(read(&Value::from(text), &names), Some((1.0, 20.0)), "{text}");
            }
            assert_eq!(read(&serde_json::json!([1, "3*prev"]), &names), Some((1.0, 30.0)));
            assert_eq!(read(&Value::from("[1, what]"), &names), None);
        }
    }
}
