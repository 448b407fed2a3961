//! The driver: agents that work through the day, and what became of each of their calls. One more agent, which has lost
//! its way, is in `looping.rs`.

use crate::client::{Client, Failure};
use crate::clock::Day;
use crate::job::{Answer, Conversation, Job, QUOTE_TOOL, Reader, Step, ToolCall, price};
use crate::looping::{LOOP, Peak};
use crate::oracle::{Mistake, judge};
use crate::reading::Reading;
use crate::script::{DAY, Script};
use reqwest::Url;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Each agent begins a job every so often, or at once when the last one took longer.
const PERIOD: Duration = Duration::from_secs(12);
/// No job begins so late that it would end on another day.
const LAST_JOB: Duration = Duration::from_secs(DAY.as_secs() - 12);

/// So many bytes of a text are enough for somebody who has no time.
const ENOUGH: usize = 30;

/// One call, as the driver saw it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    /// Time of the day when it was made.
    pub(crate) at: Duration,
    pub(crate) step: Step,
    pub(crate) ending: Ending,
    /// Real time until the agent had something.
    pub(crate) took: Duration,
    /// Whether some provider could have answered then.
    pub(crate) answerable: bool,
    /// Real time until the first word, where somebody waited for it.
    pub(crate) first_content: Option<Duration>,
    pub(crate) session: Arc<str>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ending {
    Right,
    /// Taken for good, and handed to the next agent.
    Wrong(Mistake),
    Failed(Failure),
    /// The reader had seen enough, and went. Neither right nor failed.
    HungUp,
    /// The budget of an agent that has lost its way is used up. No call was made.
    Denied,
}

/// The budget of an agent is used up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Denied;

/// Takes the records of a run while it goes on.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    records: Mutex<Vec<Record>>,
    counts: [AtomicUsize; 3],
}

impl Recorder {
    fn add(&self, record: Record) {
        let count = match record.ending {
            Ending::Right => 0,
            Ending::Wrong(_) => 1,
            Ending::Failed(_) => 2,
            Ending::HungUp | Ending::Denied => 3,
        };
        if let Some(count) = self.counts.get(count) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.records.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }

    /// Right, wrong and failed so far.
    pub(crate) fn counts(&self) -> [usize; 3] {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// All records in the order in which the calls were made.
    pub(crate) fn take(&self) -> Vec<Record> {
        let mut records = std::mem::take(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner));
        records.sort_by_key(|record| record.at);
        records
    }
}

/// Everything that the agents of one run share.
pub(crate) struct Office<C> {
    pub(crate) client: C,
    /// The first provider's address: where a request goes if nobody sends it elsewhere.
    pub(crate) url: Url,
    pub(crate) seed: u64,
    pub(crate) script: Arc<Script>,
    pub(crate) day: Day,
    pub(crate) recorder: Arc<Recorder>,
}

impl<C: Client> Office<C> {
    /// Lets so many agents work until the day is over, and one go in circles. The most that this one had used up at any
    /// time comes back, if there is a budget.
    pub(crate) async fn work(self, agents: usize) -> Option<Peak> {
        let office = Arc::new(self);
        let mut working = tokio::task::JoinSet::new();
        let lost = tokio::spawn(Arc::clone(&office).go_in_circles());
        for agent in 0..agents {
            let office = Arc::clone(&office);
            working.spawn(async move { office.agent(agent, agents).await });
        }
        while working.join_next().await.is_some() {}
        lost.await.ok().flatten()
    }

    async fn agent(&self, agent: usize, agents: usize) {
        let mut next = PERIOD.mul_f64(agent as f64 / agents as f64);
        for number in 0.. {
            if next > LAST_JOB {
                return;
            }
            self.day.sleep_until(next).await;
            self.job(&Job::draw(self.seed, agent, number)).await;
            next = (next + PERIOD).max(self.day.now());
        }
    }

    /// Plan, tool call, summary. A step whose input is missing, or is nothing that it can use, is skipped.
    async fn job(&self, job: &Job) {
        let mut conversation = Conversation::about(job);
        let Some(plan) = self.step(Step::Plan, job, &conversation).await else { return };
        if !is_usable(&plan.content) {
            return;
        }
        conversation.planned(&plan.content);
        let Some(answer) = self.step(Step::Tool, job, &conversation).await else { return };
        let Some((call, result)) = answer.call.and_then(run_tool) else { return };
        conversation.called(&call, &result);
        self.step(Step::Summary, job, &conversation).await;
    }

    /// One call; the answer if the agent took it for good.
    async fn step(&self, step: Step, job: &Job, conversation: &Conversation) -> Option<Answer> {
        self.ask(step, job, conversation).await.unwrap_or_default()
    }

    /// The same; no budget let it through, if it is an error.
    pub(crate) async fn ask(
        &self,
        step: Step,
        job: &Job,
        conversation: &Conversation,
    ) -> Result<Option<Answer>, Denied> {
        let request = conversation.request(step, &self.url);
        let leave_after = (step.reader() == Reader::Person && job.is_impatient()).then_some(ENOUGH);
        let begun = Instant::now();
        let reading = self.client.call(step, request, leave_after).await;
        let took = begun.elapsed();
        let mut first_content = None;
        let (ending, answer) = match reading {
            Ok(Reading { left: true, .. }) => (Ending::HungUp, None),
            Ok(reading) => {
                if step.reader() == Reader::Person {
                    first_content = reading.first_content;
                }
                let ending = judge(step, job, &reading.answer).map_or_else(Ending::Wrong, |()| Ending::Right);
                (ending, Some(reading.answer))
            }
            Err(failure) if failure.denied && conversation.session() == LOOP => (Ending::Denied, None),
            Err(failure) => (Ending::Failed(failure), None),
        };
        let at = self.day.time_of(begun);
        let answerable = match ending {
            Ending::HungUp | Ending::Denied => false,
            // also one that was made when nobody could answer, and waited until somebody could
            Ending::Right => true,
            Ending::Wrong(_) | Ending::Failed(_) => self.script.answerable(at),
        };
        let session = Arc::from(conversation.session());
        let is_denied = ending == Ending::Denied;
        self.recorder.add(Record { at, step, ending, took, answerable, first_content, session });
        if is_denied { Err(Denied) } else { Ok(answer) }
    }
}

/// Whether the next agent can make anything of the plan: it needs the weight out of it.
fn is_usable(plan: &str) -> bool {
    serde_json::from_str::<Value>(plan).is_ok_and(|plan| plan["weight_kg"].is_u64())
}

/// The tool itself; it refuses arguments that it cannot read.
fn run_tool(call: ToolCall) -> Option<(ToolCall, Value)> {
    if call.name != QUOTE_TOOL {
        return None;
    }
    let arguments: Value = serde_json::from_str(&call.arguments).ok()?;
    let weight = u32::try_from(arguments["weight_kg"].as_u64()?).ok()?;
    Some((call, json!({"price_eur": price(weight), "carrier": "DHX"})))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: &str) -> ToolCall {
        ToolCall { id: "call_1".into(), name: name.into(), arguments: arguments.into() }
    }

    #[test]
    fn the_tool_runs_on_sound_arguments_only() {
        let (_, result) = run_tool(call(QUOTE_TOOL, r#"{"weight_kg": 12}"#)).unwrap();
        assert_eq!(result["price_eur"], "9.10");
        assert!(run_tool(call("get_shipping_rates", r#"{"weight_kg": 12}"#)).is_none());
        assert!(run_tool(call(QUOTE_TOOL, r#"{"weight_kg": 1"#)).is_none());
        assert!(run_tool(call(QUOTE_TOOL, "{}")).is_none());
    }

    #[test]
    fn a_plan_without_a_weight_is_of_no_use_to_the_next_agent() {
        assert!(is_usable(r#"{"weight_kg": 12}"#));
        for plan in ["", "{", "{}", r#"{"weight_kg": "12"}"#] {
            assert!(!is_usable(plan), "{plan}");
        }
    }
}
