//! The work: a shipment goes through three agents. One plans, one calls a tool, one writes to the customer, and each is
//! asked with what the one before it answered.

use fastrand::Rng;
use reqwest::{Method, Request, Url};
use serde_json::{Value, json};

pub(crate) const MODEL: &str = "gpt-oss-120b";
pub(crate) const QUOTE_TOOL: &str = "quote_shipping";
pub(crate) const PICKUP_TOOL: &str = "book_pickup";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Plan,
    Tool,
    Summary,
}

/// Who an answer is for, which decides how it is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reader {
    /// The next agent, in one piece.
    Program,
    /// The next agent, streamed: it is of use when all of it is there.
    Agent,
    /// A person, who watches it being written.
    Person,
}

impl Step {
    pub(crate) fn reader(self) -> Reader {
        match self {
            Self::Plan => Reader::Program,
            Self::Tool => Reader::Agent,
            Self::Summary => Reader::Person,
        }
    }
}

/// Names the session that a request belongs to: for the provider's bill, and for whoever keeps a budget.
pub(crate) const SESSION: http::HeaderName = http::HeaderName::from_static("x-session");

/// One shipment. The order's number is drawn anew for each, so that no answer can be right by accident.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Job {
    pub(crate) order: String,
    pub(crate) parcels: u32,
    pub(crate) kilograms_each: u32,
    pub(crate) city: &'static str,
}

const CITIES: [&str; 6] = ["Kassel", "Utrecht", "Graz", "Lyon", "Turku", "Porto"];

impl Job {
    pub(crate) fn draw(seed: u64, agent: usize, number: u64) -> Self {
        let mut rng = Rng::with_seed(seed.rotate_left(32) ^ ((agent as u64) << 40) ^ number);
        let order =
            (0..8).map(|_| rng.choice(b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789").map_or('Z', |c| *c as char));
        Self {
            order: order.collect(),
            parcels: rng.u32(2..9),
            kilograms_each: rng.u32(3..20),
            city: CITIES[rng.usize(..CITIES.len())],
        }
    }

    pub(crate) fn weight(&self) -> u32 {
        self.parcels * self.kilograms_each
    }

    /// Whether the person who reads the end of it has no time for all of it. One in thirty, drawn with the order's number.
    pub(crate) fn is_impatient(&self) -> bool {
        self.order.bytes().map(u32::from).sum::<u32>() % 30 == 0
    }

    pub(crate) fn price(&self) -> String {
        price(self.weight())
    }
}

/// What the tool says: euros for so many kilograms.
pub(crate) fn price(kilograms: u32) -> String {
    let cents = 490 + 35 * kilograms;
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// The messages of one job, growing from step to step.
#[derive(Debug, Clone)]
pub(crate) struct Conversation {
    session: String,
    messages: Vec<Value>,
}

impl Conversation {
    pub(crate) fn about(job: &Job) -> Self {
        Self::in_session(&job.order, job)
    }

    /// One of several conversations of a session.
    pub(crate) fn in_session(session: &str, job: &Job) -> Self {
        let system = "You ship parcels for a shop. When asked for a plan, answer with one JSON object: `order`, \
            `weight_kg` (all parcels together) and `steps`, an array of three short sentences.";
        let user = format!(
            "Make the plan.\nOrder: {}\nParcels: {}\nKilograms each: {}\nTo: {}",
            job.order, job.parcels, job.kilograms_each, job.city
        );
        let messages =
            vec![json!({"role": "system", "content": system}), json!({"role": "user", "content": user})];
        Self { session: session.to_owned(), messages }
    }

    /// The plan as the planner gave it, and what is wanted now.
    pub(crate) fn planned(&mut self, plan: &str) {
        self.messages.push(json!({"role": "assistant", "content": plan}));
        self.messages
            .push(json!({"role": "user", "content": "Now get the price of the shipment that was planned."}));
    }

    /// The tool call as it was made, what the tool said, and what is wanted now.
    pub(crate) fn called(&mut self, call: &ToolCall, result: &Value) {
        let function = json!({"name": call.name, "arguments": call.arguments});
        let calls = json!([{"id": call.id, "type": "function", "function": function}]);
        self.messages.push(json!({"role": "assistant", "content": null, "tool_calls": calls}));
        self.messages.push(json!({"role": "tool", "tool_call_id": call.id, "content": result.to_string()}));
        let wanted = "Write to the customer in two or three sentences: the order, its weight and its price.";
        self.messages.push(json!({"role": "user", "content": wanted}));
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// One call of the API, built as a user of `reqwest` builds it.
    pub(crate) fn request(&self, step: Step, url: &Url) -> Request {
        let mut body = json!({"model": MODEL, "messages": self.messages, "max_tokens": 400});
        match step {
            Step::Plan => body["response_format"] = json!({"type": "json_object"}),
            Step::Tool => {
                body["tools"] = tools();
                body["tool_choice"] = json!("required");
            }
            Step::Summary => {}
        }
        if step.reader() != Reader::Program {
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        let mut request = Request::new(Method::POST, url.clone());
        let headers = request.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        headers.insert(http::header::AUTHORIZATION, http::HeaderValue::from_static("Bearer loopback"));
        if let Ok(session) = http::HeaderValue::from_str(&self.session) {
            headers.insert(SESSION, session);
        }
        *request.body_mut() = Some(body.to_string().into());
        request
    }
}

fn tools() -> Value {
    let tool = |name: &str, description: &str, properties: Value, required: Value| {
        let parameters = json!({"type": "object", "properties": properties, "required": required});
        json!({"type": "function",
            "function": {"name": name, "description": description, "parameters": parameters}})
    };
    json!([
        tool(
            QUOTE_TOOL,
            "What shipping an order costs",
            json!({"order": {"type": "string"}, "weight_kg": {"type": "integer"}, "city": {"type": "string"}}),
            json!(["order", "weight_kg", "city"])
        ),
        tool(
            PICKUP_TOOL,
            "Have an order fetched",
            json!({"order": {"type": "string"}, "date": {"type": "string"}}),
            json!(["order", "date"])
        ),
    ])
}

/// What an agent reads out of a chat completion.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) content: String,
    pub(crate) call: Option<ToolCall>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl Answer {
    /// Reads a body as most programs do: the first choice's message, whatever else stands there. No content is an empty
    /// one, and why the model stopped is nobody's business.
    pub(crate) fn read(body: &[u8]) -> Result<Self, String> {
        let body: Value = serde_json::from_slice(body).map_err(|error| format!("no JSON: {error}"))?;
        let message =
            body.pointer("/choices/0/message").ok_or_else(|| "no message in the answer".to_owned())?;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let call = message.pointer("/tool_calls/0").map(|call| ToolCall {
            id: text(call.get("id")),
            name: text(call.pointer("/function/name")),
            arguments: text(call.pointer("/function/arguments")),
        });
        Ok(Self { content: text(message.get("content")), call })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_drawn_from_the_seed() {
        assert_eq!(Job::draw(1, 2, 3), Job::draw(1, 2, 3));
        let others = [Job::draw(2, 2, 3), Job::draw(1, 3, 3), Job::draw(1, 2, 4)];
        assert!(others.iter().all(|other| other.order != Job::draw(1, 2, 3).order));
        assert_eq!(Job::draw(1, 2, 3).order.len(), 8);
    }

    #[test]
    fn each_step_feeds_the_next() {
        let job = Job::draw(1, 0, 0);
        let mut conversation = Conversation::about(&job);
        conversation.planned("{\"weight_kg\": 12}");
        let call = ToolCall { id: "call_1".into(), name: QUOTE_TOOL.into(), arguments: "{}".into() };
        conversation.called(&call, &json!({"price_eur": "9.10"}));
        let url: Url = "http://127.0.0.1:1/v1/chat/completions".parse().unwrap();
        let request = conversation.request(Step::Summary, &url);
        let body = request.body().and_then(|body| body.as_bytes()).unwrap();
        let body: Value = serde_json::from_slice(body).unwrap();
        assert_eq!(body["messages"][2]["content"], "{\"weight_kg\": 12}");
        assert_eq!(body["messages"][4]["tool_calls"][0]["function"]["name"], QUOTE_TOOL);
        assert_eq!(body["messages"][5]["content"], "{\"price_eur\":\"9.10\"}");
    }

    #[test]
    fn a_lenient_reader_takes_what_it_finds() {
        let body = br#"{"choices":[{"message":{"content":null},"finish_reason":"length"}]}"#;
        assert_eq!(Answer::read(body), Ok(Answer::default()));
        for no_answer in ["null", "<html>", r#"{"choices":[]}"#, r#"{"error":{}}"#, r#"{"choices":[{"mes"#] {
            assert!(Answer::read(no_answer.as_bytes()).is_err(), "{no_answer}");
        }
    }
}
