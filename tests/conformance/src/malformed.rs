//! Kind `malformed`: the strict verdict on texts that should be JSON objects, through the `json` module of `failsoft-core`.

use failsoft_core::{ToolCall, json};
use serde_json::Value;

use crate::case::{Difference, Fields, Outcome};

/// The tool that every case's request had offered.
const TOOL: &str = "get_weather";

/// Runs one case.
pub(crate) fn run(case: &Value) -> Outcome {
    match replay(case) {
        Ok(differences) => Outcome::of(differences),
        Err(problem) => Outcome::unreadable(problem),
    }
}

fn replay(case: &Value) -> Result<Vec<Difference>, String> {
    let fields = Fields::of(case, "case")?;
    fields.ignore(&["name", "note"]);
    let text = fields.need("text", Value::as_str)?;
    let wanted = fields.need("class", Value::as_str)?;
    let strict = fields.need("strict", |value| match value.as_str()? {
        "ok" => Some(true),
        "error" => Some(false),
        _ => None,
    })?;
    let got = match fields.need("where", Value::as_str)? {
        "reply" => of_reply(text),
        "arguments" => kind(json::arguments_of(&ToolCall::new(TOOL, text))),
        other => return Err(format!("case: where cannot be {other}")),
    };
    fields.all_known()?;
    let mut differences = Vec::new();
    let mut check = |at: &str, wanted: &str, got: &str| {
        if wanted != got {
            differences.push(Difference {
                at: at.to_owned(),
                wanted: wanted.to_owned(),
                got: got.to_owned(),
            });
        }
    };
    check("class", wanted, got);
    let name = |is_taken| if is_taken { "ok" } else { "error" };
    check("strict", name(strict), name(serde_json::from_str::<Value>(text).is_ok()));
    Ok(differences)
}

fn of_reply(text: &str) -> &'static str {
    match json::leaked(text, &[TOOL]) {
        Some(_) => "leaked-tool-call",
        None => kind(json::object(text)),
    }
}

fn kind<T>(read: Result<T, json::Flaw>) -> &'static str {
    read.map_or_else(|flaw| flaw.kind().as_str(), |_| "ok")
}
