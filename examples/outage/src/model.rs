//! The simulated model: reads a chat request, knows the right answer, and gives it, or spoils it as it is told.

use crate::job::{PICKUP_TOOL, QUOTE_TOOL, Step, price};
use crate::script::Wrong;
use serde_json::{Value, json};

/// What a request asks for, as far as this model understands it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Question {
    pub(crate) step: Step,
    order: String,
    weight: u32,
    city: String,
    price: String,
    prompt_tokens: u64,
    /// Whether the answer is to be streamed, and whether with the usage at its end.
    pub(crate) stream: Option<Usage>,
}

/// Whether a stream ends with what it cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    Told,
    Untold,
}

/// A body to send with a 200, and what it costs.
#[derive(Debug, Clone)]
pub(crate) struct Completion {
    pub(crate) body: String,
    pub(crate) content_type: &'static str,
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
    /// Whether the body says so, to whoever reads it.
    pub(crate) told: bool,
}

impl Completion {
    pub(crate) fn total_tokens(&self) -> u64 {
        self.prompt_tokens + self.completion_tokens
    }
}

impl Question {
    /// `Err` is what is wrong with the request, for a 400.
    pub(crate) fn read(body: &[u8]) -> Result<Self, String> {
        let request: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let messages = request["messages"].as_array().ok_or("`messages` is no array")?;
        let said = |role: &str| {
            messages.iter().find(|message| message["role"] == role).and_then(|said| said["content"].as_str())
        };
        let task = said("user").ok_or("no user message")?;
        let step = if request["tools"].is_array() {
            Step::Tool
        } else if said("tool").is_some() {
            Step::Summary
        } else {
            Step::Plan
        };
        // A model works with what it is given: the plan's weight, not its own, the tool's price, not its own.
        let plan = said("assistant").and_then(|plan| serde_json::from_str::<Value>(plan).ok());
        let weight = match (step, plan) {
            (Step::Plan, _) => number(task, "Parcels")? * number(task, "Kilograms each")?,
            (_, Some(plan)) => plan["weight_kg"].as_u64().ok_or("no weight in the plan")?,
            (_, None) => return Err("no plan".into()),
        };
        let weight = u32::try_from(weight).map_err(|error| error.to_string())?;
        let quote = said("tool").and_then(|quote| serde_json::from_str::<Value>(quote).ok());
        Ok(Self {
            step,
            order: line(task, "Order")?.to_owned(),
            weight,
            city: line(task, "To")?.to_owned(),
            price: quote
                .and_then(|quote| quote["price_eur"].as_str().map(str::to_owned))
                .unwrap_or_else(|| price(weight)),
            prompt_tokens: tokens(body.len()),
            stream: (request["stream"] == true).then_some(
                if request["stream_options"]["include_usage"] == true { Usage::Told } else { Usage::Untold },
            ),
        })
    }

    /// The right answer.
    pub(crate) fn answer(&self, id: u64) -> Completion {
        match self.step {
            Step::Plan => self.says(id, &self.plan().to_string(), "stop"),
            Step::Tool => self.calls(id, QUOTE_TOOL, &self.arguments(), "tool_calls"),
            Step::Summary => self.says(id, &self.summary(), "stop"),
        }
    }

    /// An answer that is wrong in this way.
    pub(crate) fn wrong_answer(&self, id: u64, wrong: Wrong) -> Completion {
        match wrong {
            Wrong::CutJson => {
                let whole = self.answer(id);
                let body = half(&whole.body).to_owned();
                Completion { body, told: false, ..whole }
            }
            Wrong::NotACompletion => self.raw(r#"{"object":"list","data":[]}"#),
            Wrong::ErrorInside => self.raw(
                r#"{"error":{"message":"The model produced an internal error.","type":"server_error","param":null,"code":null}}"#,
            ),
            Wrong::NoChoices => self.completion(id, &json!([]), 0),
            Wrong::HtmlPage => Completion {
                content_type: "text/html; charset=utf-8",
                ..self.raw("<!doctype html><html><head><title>Please wait</title></head><body>One moment, please.</body></html>")
            },
            Wrong::Null => self.raw("null"),
            Wrong::Empty => self.says(id, "", "stop"),
            Wrong::CutAtLength => match self.step {
                Step::Plan => self.says(id, half(&self.plan().to_string()), "length"),
                Step::Tool => self.calls(id, QUOTE_TOOL, half(&self.arguments()), "length"),
                Step::Summary => self.says(id, half(&self.summary()), "length"),
            },
            Wrong::MalformedPlan => self.says(id, &self.plan().to_string().replace("\",\"", "\" \""), "stop"),
            Wrong::MissingField => {
                let mut plan = self.plan();
                if let Some(plan) = plan.as_object_mut() {
                    plan.remove("weight_kg");
                }
                self.says(id, &plan.to_string(), "stop")
            }
            Wrong::IdlePlan => {
                let mut plan = self.plan();
                plan["steps"] = json!(["Start.", "", ""]);
                self.says(id, &plan.to_string(), "stop")
            }
            Wrong::ProseForCall => self.says(id, "Of course, I will look up the price for you.", "stop"),
            Wrong::UnknownTool => self.calls(id, "get_shipping_rates", &self.arguments(), "tool_calls"),
            Wrong::CutArguments => self.calls(id, QUOTE_TOOL, half(&self.arguments()), "tool_calls"),
        }
    }

    fn plan(&self) -> Value {
        json!({
            "order": self.order,
            "weight_kg": self.weight,
            "steps": [
                format!("Get a price for {} kg to {} with {QUOTE_TOOL}.", self.weight, self.city),
                format!("Have it fetched with {PICKUP_TOOL}."),
                format!("Tell the customer of order {} the price.", self.order),
            ],
        })
    }

    fn arguments(&self) -> String {
        json!({"order": self.order, "weight_kg": self.weight, "city": self.city}).to_string()
    }

    fn summary(&self) -> String {
        format!(
            "Your order {} is packed and weighs {} kg. Shipping it to {} costs {} EUR. We will have it fetched \
             tomorrow.",
            self.order, self.weight, self.city, self.price
        )
    }

    fn says(&self, id: u64, content: &str, finish: &str) -> Completion {
        let message = json!({"role": "assistant", "content": content, "refusal": null});
        self.chooses(id, &message, finish, content.len())
    }

    fn calls(&self, id: u64, tool: &str, arguments: &str, finish: &str) -> Completion {
        let function = json!({"name": tool, "arguments": arguments});
        let calls = json!([{"id": format!("call_{id}"), "type": "function", "function": function}]);
        let message = json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": calls});
        self.chooses(id, &message, finish, tool.len() + arguments.len())
    }

    fn chooses(&self, id: u64, message: &Value, finish: &str, bytes: usize) -> Completion {
        let choices = json!([{"index": 0, "message": message, "logprobs": null, "finish_reason": finish}]);
        self.completion(id, &choices, tokens(bytes))
    }

    fn completion(&self, id: u64, choices: &Value, completion_tokens: u64) -> Completion {
        let prompt_tokens = self.prompt_tokens;
        let body = json!({
            "id": format!("chatcmpl-{id}"),
            "object": "chat.completion",
            "created": 1_790_000_000,
            "model": crate::job::MODEL,
            "choices": choices,
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": completion_tokens,
                "total_tokens": prompt_tokens + completion_tokens,
            },
        });
        Completion {
            body: body.to_string(),
            content_type: "application/json",
            prompt_tokens,
            completion_tokens,
            told: true,
        }
    }

    /// Something that did not come from the model: a proxy's page, a gateway's error. Nobody bills it.
    fn raw(&self, body: &str) -> Completion {
        Completion {
            body: body.to_owned(),
            content_type: "application/json",
            prompt_tokens: 0,
            completion_tokens: 0,
            told: false,
        }
    }
}

/// All that this model says is ASCII.
fn half(text: &str) -> &str {
    text.get(..text.len() / 2).unwrap_or_default()
}

/// About four bytes a token.
pub(crate) fn tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(4)
}

fn line<'a>(task: &'a str, name: &str) -> Result<&'a str, String> {
    task.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        .ok_or_else(|| format!("the task has no `{name}`"))
}

fn number(task: &str, name: &str) -> Result<u64, String> {
    line(task, name)?.parse().map_err(|error| format!("`{name}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Answer, Conversation, Job, ToolCall};
    use crate::oracle::{Mistake, judge};

    /// The three questions of one job, each fed with the right answer before it.
    fn questions(job: &Job) -> [Question; 3] {
        let url = "http://127.0.0.1:1/".parse().unwrap();
        let ask = |conversation: &Conversation, step| {
            let request = conversation.request(step, &url);
            Question::read(request.body().and_then(|body| body.as_bytes()).unwrap()).unwrap()
        };
        let mut conversation = Conversation::about(job);
        let plan = ask(&conversation, Step::Plan);
        conversation.planned(&plan.plan().to_string());
        let tool = ask(&conversation, Step::Tool);
        let call = ToolCall { id: "call_0".into(), name: QUOTE_TOOL.into(), arguments: tool.arguments() };
        conversation.called(&call, &json!({"price_eur": job.price()}));
        let summary = ask(&conversation, Step::Summary);
        [plan, tool, summary]
    }

    #[test]
    fn the_right_answers_are_right() {
        for number in 0..20 {
            let job = Job::draw(9, 0, number);
            for question in questions(&job) {
                let answer = Answer::read(question.answer(1).body.as_bytes()).unwrap();
                assert_eq!(judge(question.step, &job, &answer), Ok(()), "{answer:?}");
            }
        }
    }

    #[test]
    fn the_answer_to_another_job_is_wrong() {
        let job = Job::draw(9, 0, 1);
        for question in questions(&Job::draw(9, 0, 2)) {
            let answer = Answer::read(question.answer(1).body.as_bytes()).unwrap();
            assert!(judge(question.step, &job, &answer).is_err(), "{answer:?}");
        }
    }

    #[test]
    fn the_model_uses_the_plan_that_it_is_given() {
        let job = Job::draw(9, 0, 1);
        let url = "http://127.0.0.1:1/".parse().unwrap();
        let mut conversation = Conversation::about(&job);
        conversation.planned(r#"{"weight_kg": 1}"#);
        let request = conversation.request(Step::Tool, &url);
        let question = Question::read(request.body().and_then(|body| body.as_bytes()).unwrap()).unwrap();
        let answer = Answer::read(question.answer(1).body.as_bytes()).unwrap();
        assert_eq!(judge(Step::Tool, &job, &answer), Err(Mistake::WrongValue));
    }

    /// What each wrong answer is to a lenient reader and to the oracle: no answer at all (`None`), or a mistake.
    #[test]
    fn every_wrong_answer_is_recognised() {
        let job = Job::draw(9, 0, 1);
        let [plan, tool, summary] = questions(&job);
        use Wrong::*;
        for question in [&plan, &tool, &summary] {
            for wrong in [CutJson, NotACompletion, ErrorInside, NoChoices, HtmlPage, Null] {
                let body = question.wrong_answer(1, wrong).body;
                assert!(Answer::read(body.as_bytes()).is_err(), "{wrong:?}: {body}");
            }
        }
        for (question, wrong, mistake) in [
            (&plan, Empty, Mistake::Empty),
            (&plan, CutAtLength, Mistake::NotJson),
            (&plan, MalformedPlan, Mistake::NotJson),
            (&plan, MissingField, Mistake::MissingField),
            (&plan, IdlePlan, Mistake::NoSteps),
            (&tool, Empty, Mistake::NoToolCall),
            (&tool, CutAtLength, Mistake::BadArguments),
            (&tool, ProseForCall, Mistake::NoToolCall),
            (&tool, UnknownTool, Mistake::UnknownTool),
            (&tool, CutArguments, Mistake::BadArguments),
            (&summary, Empty, Mistake::Empty),
            (&summary, CutAtLength, Mistake::CutOff),
        ] {
            let body = question.wrong_answer(1, wrong).body;
            let answer = Answer::read(body.as_bytes()).unwrap();
            assert_eq!(judge(question.step, &job, &answer), Err(mistake), "{wrong:?}: {body}");
        }
    }

    #[test]
    fn the_bill_is_what_the_answer_says() {
        let [plan, ..] = questions(&Job::draw(9, 0, 1));
        let answer = plan.answer(1);
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(body["usage"]["prompt_tokens"], answer.prompt_tokens);
        assert_eq!(body["usage"]["completion_tokens"], answer.completion_tokens);
        assert!(answer.prompt_tokens > 50 && answer.completion_tokens > 10);
    }
}
