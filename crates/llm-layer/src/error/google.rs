//! The `details` of Google's errors, which say what the same sentence and status leave open.
//!
//! "You exceeded your current quota" is said of limits by the minute and of those by the day. Which one it is stands in
//! the `QuotaFailure`: by the day there is nothing to wait for, whatever the `RetryInfo` beside it says.

use std::{borrow::Cow, time::Duration};

use failsoft_core::advice;

use crate::lens;

/// What the details say.
#[derive(Debug, Default)]
pub(super) struct Details<'a> {
    /// The reasons of `ErrorInfo`.
    pub(super) reasons: Vec<Cow<'a, str>>,
    /// A limit by the day, or one of zero, is used up.
    pub(super) is_quota: bool,
    /// The delay of `RetryInfo`.
    pub(super) retry_after: Option<Duration>,
}

/// More details or violations are not looked at.
const MAX: usize = 32;

impl<'a> Details<'a> {
    /// Reads the list of details. Of a list of something else nothing is known.
    pub(super) fn read(raw: &'a str) -> Self {
        let mut found = Self::default();
        each(raw, |detail| {
            let names = ["reason", "violations", "retryDelay"];
            let [reason, violations, delay] = lens::fields(detail, names).unwrap_or_default();
            found.reasons.extend(lens::some_string(reason));
            each(violations.unwrap_or("[]"), |violation| {
                let [id, value] = lens::fields(violation, ["quotaId", "quotaValue"]).unwrap_or_default();
                let id = id.and_then(lens::string).unwrap_or_default();
                let value = value.map(|raw| lens::string(raw).unwrap_or(Cow::Borrowed(raw)));
                found.is_quota |=
                    id.contains("PerDay") || id.contains("Daily") || value.as_deref() == Some("0");
            });
            let delay = delay.and_then(lens::string);
            let delay = delay.and_then(|text| advice::parse_reset(&text, advice::wall_clock()));
            found.retry_after = found.retry_after.max(delay);
        });
        found
    }
}

fn each<'a>(raw: &'a str, mut f: impl FnMut(&'a str)) {
    let mut left = MAX;
    lens::each(raw, |element| {
        f(element);
        left -= 1;
        left > 0
    });
}

/// Whether the message names a limit of zero, which a plan without access has.
pub(super) fn has_limit_of_zero(message: &str) -> bool {
    const LIMIT: &str = "limit: 0";
    message.match_indices(LIMIT).any(|(at, _)| {
        let after = message.as_bytes().get(at + LIMIT.len());
        !after.is_some_and(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','))
            || message.get(at + LIMIT.len()..).is_some_and(|rest| rest.starts_with(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_zero_is_told_from_every_other_number() {
        for zero in ["limit: 0", "x, limit: 0\n* y", "limit: 0, model: gemini-2.5-pro", "limit: 5\nlimit: 0"]
        {
            assert!(has_limit_of_zero(zero), "{zero}");
        }
        for other in ["limit: 05", "limit: 0.5", "limit: 10", "limit: 0,5", "Limit 0", ""] {
            assert!(!has_limit_of_zero(other), "{other}");
        }
    }

    #[test]
    fn a_limit_by_the_day_is_seen_among_others_and_the_longest_delay_counts() {
        let raw = r#"[{"@type":"x","violations":[{"quotaId":"RequestsPerMinute"},{"quotaId":"TokensPerDayPerProject"}]},
            {"@type":"y","retryDelay":"34.07s"},{"retryDelay":"900ms"},{"reason":"RATE_LIMIT_EXCEEDED"},7,null]"#;
        let found = Details::read(raw);
        assert!(found.is_quota);
        assert_eq!(found.retry_after, Some(Duration::from_millis(34_070)));
        assert_eq!(found.reasons, ["RATE_LIMIT_EXCEEDED"]);
        for raw in ["{}", "7", "[[]]", r#"[{"violations":{},"retryDelay":9,"reason":{}}]"#] {
            let found = Details::read(raw);
            assert!(!found.is_quota && found.retry_after.is_none() && found.reasons.is_empty(), "{raw}");
        }
    }
}
