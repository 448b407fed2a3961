//! What is right for a sample.

use failsoft_core::{Class, Facts, Finish, Hint, SoftKind};
use serde_json::{Value, json};

use super::Said;
use crate::case::{Difference, Fields};

/// The columns that say what is right.
pub(crate) struct Wanted {
    class: String,
    hint: Hint,
    after_ms: Option<u64>,
    usage: Option<Value>,
}

impl Wanted {
    pub(crate) fn read(fields: &Fields<'_>) -> Result<Self, String> {
        let empty_or = |value: &Value, read: fn(&str) -> Option<Value>| match value.as_str()? {
            "" => Some(None),
            text => read(text).map(Some),
        };
        let number = |text: &str| text.parse::<u64>().ok().map(Value::from);
        let after_ms = fields.need("retry_after_ms", |value| empty_or(value, number))?;
        Ok(Self {
            class: fields.need("expected", known_class)?,
            hint: fields.need("retry_hint", |value| hint(value.as_str()?))?,
            after_ms: after_ms.as_ref().and_then(Value::as_u64),
            usage: fields.need("expected_usage_json", |value| {
                empty_or(value, |text| serde_json::from_str(text).ok())
            })?,
        })
    }

    /// What is not as wanted.
    pub(crate) fn compare(&self, at: &str, said: &Said, differences: &mut Vec<Difference>) {
        let mut check = |what: &str, holds: bool, wanted: String, got: String| {
            if !holds {
                differences.push(Difference { at: format!("{at}: {what}"), wanted, got });
            }
        };
        let (verdict, facts) = (&said.verdict, &said.facts);
        let class = verdict.class();
        check("class", is_class(&self.class, class, facts), self.class.clone(), class.to_string());
        let is_found_inside = matches!(&*self.class, "error-in-200" | "stream-error");
        let hints = [Hint::Same, Hint::After, Hint::Fallback];
        let is_hint =
            if is_found_inside { hints.contains(&verdict.hint()) } else { verdict.hint() == self.hint };
        check("hint", is_hint, format!("{:?}", self.hint), format!("{:?}", verdict.hint()));
        if let Some(wanted) = self.after_ms {
            let got = verdict.retry_after().map(|after| after.as_millis());
            check("retry_after_ms", got == Some(wanted.into()), wanted.to_string(), format!("{got:?}"));
        }
        let (wanted, got) = match &self.usage {
            Some(wanted) => (wanted.clone(), usage(facts)),
            None => (json!({"total": 0}), json!({"total": facts.usage.total()})),
        };
        check("usage", wanted == got, wanted.to_string(), got.to_string());
    }
}

/// Total input, of which the cache's are parts, and total output, of which reasoning is one.
fn usage(facts: &Facts) -> Value {
    let usage = facts.usage;
    let all = |bucket: Option<u64>| bucket.unwrap_or(0);
    json!({
        "input": usage.total_input(),
        "output": usage.total_output(),
        "cache_read": all(usage.cache_read),
        "cache_write": all(usage.cache_write),
        "reasoning": all(usage.reasoning),
        "total": usage.total(),
    })
}

fn hint(name: &str) -> Option<Hint> {
    Some(match name {
        "none" => Hint::Never,
        "same" => Hint::Same,
        "after-delay" => Hint::After,
        "modify" => Hint::Modify,
        "fallback" => Hint::Fallback,
        "continue" => Hint::Continue,
        _ => return None,
    })
}

fn known_class(value: &Value) -> Option<String> {
    let name = value.as_str()?;
    let known = class_of(name).is_some()
        || matches!(name, "refusal" | "content-filter" | "error-in-200" | "stream-error");
    known.then(|| name.to_owned())
}

/// The classes that have one name in the table and one in the crates.
fn class_of(name: &str) -> Option<Class> {
    Some(match name {
        "ok" => Class::Success,
        "empty" => Class::Soft(SoftKind::Empty),
        "truncated" | "stream-truncated" => Class::Soft(SoftKind::Truncated),
        "malformed-json" => Class::Soft(SoftKind::Malformed),
        "malformed-tool-call" => Class::Soft(SoftKind::ToolCall),
        "unknown-tool" => Class::Soft(SoftKind::UnknownTool),
        "leaked-tool-call" => Class::Soft(SoftKind::LeakedToolCall),
        "schema-violation" => Class::Soft(SoftKind::Schema),
        "repetition" => Class::Soft(SoftKind::Repetition),
        "context-length" => Class::ContextLength,
        "bad-request" | "request-too-large" => Class::Invalid,
        "rate-limited" => Class::RateLimited,
        "quota" => Class::Quota,
        "overloaded" => Class::Overloaded,
        "auth" => Class::Auth,
        "model-not-found" => Class::ModelNotFound,
        "server-error" => Class::Transient,
        _ => return None,
    })
}

fn is_class(wanted: &str, got: Class, facts: &Facts) -> bool {
    match wanted {
        // The class of the error inside, which is none of the answer's own.
        "error-in-200" | "stream-error" => {
            !matches!(got, Class::Success | Class::Soft(_) | Class::Cancelled | Class::Denied(_))
        }
        "content-filter" => got == Class::Refused && facts.finish == Some(Finish::ContentFilter),
        "refusal" => got == Class::Refused && facts.finish != Some(Finish::ContentFilter),
        name => class_of(name) == Some(got),
    }
}
