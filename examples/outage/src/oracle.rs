//! The oracle: it knows each job's right answers, and nobody it judges can see it.

use crate::job::{Answer, Job, QUOTE_TOOL, Step};
use serde_json::Value;

/// What is wrong with an answer that an agent took for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Mistake {
    Empty,
    NotJson,
    MissingField,
    WrongValue,
    NoSteps,
    NoToolCall,
    UnknownTool,
    BadArguments,
    CutOff,
    MissingFact,
}

impl Mistake {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::NotJson => "not JSON",
            Self::MissingField => "a field is missing",
            Self::WrongValue => "a value is wrong",
            Self::NoSteps => "no real steps",
            Self::NoToolCall => "no tool call",
            Self::UnknownTool => "a tool that does not exist",
            Self::BadArguments => "broken tool arguments",
            Self::CutOff => "cut off",
            Self::MissingFact => "a fact is missing",
        }
    }
}

pub(crate) fn judge(step: Step, job: &Job, answer: &Answer) -> Result<(), Mistake> {
    match step {
        Step::Plan => plan(job, &answer.content),
        Step::Tool => tool(job, answer),
        Step::Summary => summary(job, &answer.content),
    }
}

fn plan(job: &Job, content: &str) -> Result<(), Mistake> {
    if content.trim().is_empty() {
        return Err(Mistake::Empty);
    }
    let plan: Value = serde_json::from_str(content).map_err(|_| Mistake::NotJson)?;
    let [order, weight, steps] = ["order", "weight_kg", "steps"].map(|field| plan.get(field));
    let (Some(order), Some(weight), Some(steps)) = (order, weight, steps) else {
        return Err(Mistake::MissingField);
    };
    if order != job.order.as_str() || weight != job.weight() {
        return Err(Mistake::WrongValue);
    }
    let is_sentence = |step: &Value| step.as_str().is_some_and(|step| step.split_whitespace().count() >= 2);
    match steps.as_array() {
        Some(steps) if steps.len() == 3 && steps.iter().all(is_sentence) => Ok(()),
        _ => Err(Mistake::NoSteps),
    }
}

fn tool(job: &Job, answer: &Answer) -> Result<(), Mistake> {
    let call = answer.call.as_ref().ok_or(Mistake::NoToolCall)?;
    if call.name != QUOTE_TOOL {
        return Err(Mistake::UnknownTool);
    }
    let arguments: Value = serde_json::from_str(&call.arguments).map_err(|_| Mistake::BadArguments)?;
    let wanted = [
        ("order", Value::from(job.order.as_str())),
        ("weight_kg", Value::from(job.weight())),
        ("city", Value::from(job.city)),
    ];
    for (field, value) in wanted {
        match arguments.get(field) {
            None => return Err(Mistake::BadArguments),
            Some(found) if *found != value => return Err(Mistake::WrongValue),
            Some(_) => {}
        }
    }
    Ok(())
}

fn summary(job: &Job, content: &str) -> Result<(), Mistake> {
    if content.trim().is_empty() {
        return Err(Mistake::Empty);
    }
    // Every sentence that the model writes ends; one that does not was cut.
    if !content.trim_end().ends_with('.') {
        return Err(Mistake::CutOff);
    }
    let facts = [job.order.clone(), format!("{} kg", job.weight()), format!("{} EUR", job.price())];
    if facts.iter().all(|fact| content.contains(fact)) { Ok(()) } else { Err(Mistake::MissingFact) }
}
