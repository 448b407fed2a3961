//! The stack, as somebody writes it who has three providers of one model and knows what they want from it. The only file
//! that knows the layers; what it does not know is the script.

use crate::client::{
    Account, CircuitState, Client, Failure, PATIENCE, Transition, chain, http_client, is_shown, whole,
};
use crate::clock::{Day, Pace};
use crate::job::{PICKUP_TOOL, QUOTE_TOOL, Reader, SESSION, Step};
use crate::provider::Provider;
use crate::reading::Reading;
use crate::reading::read;
use crate::ride::BoxError;
use breaker_layer::engine::{Counts, Over, Reason, State};
use breaker_layer::{BreakerLayer, Circuit};
use budget_layer::{BudgetLayer, Ledger};
use failsoft_core::{
    Backoff, ByResponse, Class, Classify, ConfigError, Denier, Insight, Step as Judged, Verdict,
    verdict_of_body_error,
};
use fallback_layer::{FallbackLayer, Route};
use llm_layer::LlmLayer;
use reqwest::{Request, Response, Url};
use retry_layer::{RetryBudget, RetryLayer};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt as _};
use validate_layer::checks::Length;
use validate_layer::{Answer, ValidateLayer};

/// Who reads a kind of answer, and what is asked of it.
type Checks = (Reader, ValidateLayer);

type Service = BoxCloneSyncService<Request, Response, BoxError>;

/// What a right answer looks like from outside, for each kind of step.
fn plan_checks() -> Result<ValidateLayer, ConfigError> {
    ValidateLayer::builder()
        .json_object()
        .require("/order")
        .require("/weight_kg")
        .require("/steps")
        .check_fn("steps", |answer: &Answer| {
            let steps = answer.value().and_then(|plan| plan["steps"].as_array());
            match steps {
                Some(steps)
                    if steps.len() == 3
                        && steps.iter().all(|step| step.as_str().is_some_and(says_something)) =>
                {
                    Ok(())
                }
                _ => Err("a plan has three steps, and each one says something"),
            }
        })
        .build()
}

fn says_something(step: &str) -> bool {
    !step.trim().is_empty()
}

fn tool_checks() -> Result<ValidateLayer, ConfigError> {
    ValidateLayer::builder()
        .tools([QUOTE_TOOL, PICKUP_TOOL])
        .check_fn("no_call", |answer: &Answer| {
            if answer.tool_calls().is_empty() { Err("a tool was to be called") } else { Ok(()) }
        })
        .build()
}

/// A person reads the summary while it is written: what comes too late to be checked is not.
fn summary_checks() -> Result<ValidateLayer, ConfigError> {
    ValidateLayer::builder().expected_length(Length::words(25)).build()
}

/// Whoever reads the answers, the model's dialect and the limits on a stream are the same: 10 s to the first word, as by
/// default, and then no silence of more than 10 s.
fn reading(target: &'static str, reader: Reader, pace: Pace) -> Result<LlmLayer, ConfigError> {
    let seconds = |seconds| pace.real(Duration::from_secs(seconds));
    let llm = LlmLayer::builder().name(target);
    match reader {
        Reader::Program => llm,
        Reader::Person => llm.first_content(seconds(10)).idle(seconds(10)),
        Reader::Agent => llm.first_content(seconds(10)).idle(seconds(10)).hold_to_end(1 << 20),
    }
    .build()
}

/// Each session's tokens: generous for a shipment, which needs about a thousand and some more where calls are repeated.
const TOKENS: u64 = 12_000;
/// Kept for a call in which a session concludes. It also covers attempts that get lost in the last calls before the line:
/// each counts with an estimate, and only one was reserved for a call.
const CLOSING: u64 = 3_000;

fn session(request: &Request) -> String {
    let session = request.headers().get(SESSION).and_then(|session| session.to_str().ok());
    session.unwrap_or_default().to_owned()
}

/// One provider: where it is, and what all calls to it share.
struct Target {
    name: &'static str,
    url: Url,
    breaker: BreakerLayer,
    retry: RetryLayer,
}

impl Target {
    fn new(name: &'static str, url: Url, pace: Pace) -> Result<Self, ConfigError> {
        // Every number is the default but one, and every duration is the default at the day's pace.
        let seconds = |seconds| pace.real(Duration::from_secs(seconds));
        let breaker = BreakerLayer::builder()
            .name(name)
            .over(Over::Time { span: seconds(60), buckets: 10 })
            .open_time(seconds(30))
            .max_open_time(seconds(300))
            .hold_from(seconds(5))
            .max_advice(seconds(3600))
            .lease(seconds(60))
            .build()?;
        let backoff =
            Backoff::exponential(seconds(1)).max(seconds(60)).min(pace.real(Duration::from_millis(100)));
        let budget = RetryBudget::builder().min_per_sec(10.0 * pace.factor).ttl(seconds(10)).build()?;
        let retry = RetryLayer::builder()
            .target(name)
            .backoff(backoff)
            .budget(budget)
            .ready_within(seconds(1))
            .max_advice(seconds(120))
            // Asking a model twice does no harm.
            .repeat_unanswered(true)
            .build()?;
        Ok(Self { name, url, breaker, retry })
    }

    /// The layers in their order around the client. The client itself gives up after [`PATIENCE`].
    fn service(
        &self,
        (reader, checks): &Checks,
        client: &reqwest::Client,
        pace: Pace,
    ) -> Result<Service, ConfigError> {
        let url = self.url.clone();
        let service = ServiceBuilder::new()
            .layer(self.retry.clone())
            .layer(self.breaker.clone())
            .layer(checks.clone())
            .layer(reading(self.name, *reader, pace)?)
            .map_request(move |mut request: Request| {
                *request.url_mut() = url.clone();
                request
            })
            .service(client.clone());
        Ok(BoxCloneSyncService::new(service))
    }
}

/// The finished stack: for each kind of step a service, all of them over the same circuits.
#[derive(Clone)]
pub(crate) struct Stack {
    plan: Service,
    tool: Service,
    summary: Service,
    circuits: Arc<[(&'static str, Circuit)]>,
    transitions: Arc<Mutex<Vec<Transition>>>,
    ledger: Ledger,
}

impl Stack {
    pub(crate) fn new(providers: &[Provider], day: Day) -> Result<Self, BoxError> {
        let client = http_client(day.pace.real(PATIENCE))?;
        let targets = providers
            .iter()
            .map(|provider| Target::new(provider.name, provider.url.clone(), day.pace))
            .collect::<Result<Vec<_>, _>>()?;
        let budget = BudgetLayer::builder()
            .tokens(TOKENS)
            .closing_reserve(CLOSING)
            .key_fn(session)
            // What a provider wrote while nobody read any more is on its bill.
            .charge_cut_in_full()
            .build()?;
        let checks = [
            (Step::Plan.reader(), plan_checks()?),
            (Step::Tool.reader(), tool_checks()?),
            (Step::Summary.reader(), summary_checks()?),
        ];
        let [plan, tool, summary] = checks.map(|checks| {
            let cascade = cascade(&targets, &checks, &client, day.pace)?;
            let service = ServiceBuilder::new().layer(budget.clone()).service(cascade);
            Ok::<_, BoxError>(BoxCloneSyncService::new(service))
        });
        let transitions = Arc::<Mutex<Vec<Transition>>>::default();
        let circuits = targets
            .iter()
            .map(|target| {
                let circuit = target.breaker.circuit().clone();
                write_down(target.name, &circuit, day, &transitions);
                (target.name, circuit)
            })
            .collect();
        let ledger = budget.ledger().clone();
        Ok(Self { plan: plan?, tool: tool?, summary: summary?, circuits, transitions, ledger })
    }
}

/// The first provider, and the others behind it.
fn cascade(
    targets: &[Target],
    checks: &Checks,
    client: &reqwest::Client,
    pace: Pace,
) -> Result<Service, BoxError> {
    let seconds = |seconds| pace.real(Duration::from_secs(seconds));
    let [first, others @ ..] = targets else { return Err("no provider".into()) };
    let mut fallback = FallbackLayer::builder()
        .first(Route::first(first.name).health(first.breaker.circuit().clone()))
        .timeout(seconds(60))
        .ready_within(seconds(5));
    for other in others {
        let route = Route::new(other.name, other.service(checks, client, pace)?);
        fallback = fallback.route(route.health(other.breaker.circuit().clone()));
    }
    let service =
        ServiceBuilder::new().layer(fallback.build()?).service(first.service(checks, client, pace)?);
    Ok(BoxCloneSyncService::new(service))
}

fn write_down(name: &'static str, circuit: &Circuit, day: Day, transitions: &Arc<Mutex<Vec<Transition>>>) {
    let transitions = Arc::clone(transitions);
    let listening = circuit.subscribe(move |transition| {
        let transition = Transition {
            at: day.now(),
            circuit: name,
            from: circuit_state(transition.from),
            to: circuit_state(transition.to),
            why: why(&transition.reason, &transition.counts),
        };
        transitions.lock().unwrap_or_else(PoisonError::into_inner).push(transition);
    });
    listening.forever();
}

fn why(reason: &Reason, counts: &Counts) -> String {
    let said = reason.as_str().replace('_', " ");
    match (reason, counts.total, counts.refused) {
        // One outcome decided, whatever the others were.
        (Reason::AtOnce | Reason::RateLimited, ..) | (_, 0, 0) => said,
        (_, 0, 1) => format!("{said}; 1 call was refused"),
        (_, 0, refused) => format!("{said}; {refused} calls were refused"),
        (_, total, _) => format!("{said}; {} of {total} had failed", counts.failed),
    }
}

fn circuit_state(state: State) -> CircuitState {
    match state {
        State::Open | State::ForcedOpen => CircuitState::Open,
        State::HalfOpen => CircuitState::HalfOpen,
        _ => CircuitState::Closed,
    }
}

impl Client for Stack {
    async fn call(
        &self,
        step: Step,
        request: Request,
        leave_after: Option<usize>,
    ) -> Result<Reading, Failure> {
        let begun = Instant::now();
        let service = match step {
            Step::Plan => &self.plan,
            Step::Tool => &self.tool,
            Step::Summary => &self.summary,
        };
        let response = service.clone().oneshot(request).await;
        let response = response.map_err(|error| failure(Verdict::of_error(&*error), chain(&*error)))?;
        // What an upstream said last comes back as it said it, with the verdict of the layers on it.
        if let Judged::Now(verdict) = ByResponse.response(&response)
            && !verdict.is_success()
        {
            return Err(failure(verdict, format!("status {}", response.status())));
        }
        if step.reader() == Reader::Program {
            let body = response.bytes().await;
            return whole(&body.map_err(|error| failure(verdict_of_body_error(&error), chain(&error)))?);
        }
        let insight = Insight::of(response.extensions()).cloned();
        let reading = read(response, begun, leave_after).await.map_err(|broken| Failure {
            shown: is_shown(step, &broken),
            ..failure(verdict_of_body_error(&broken.error), chain(&broken.error))
        })?;
        // Whether what was streamed is an answer shows at its end, and whoever has read it is told.
        match insight.and_then(|insight| insight.verdict()) {
            Some(verdict) if !reading.left && !verdict.is_success() => Err(Failure {
                shown: reading.first_content.is_some(),
                ..failure(verdict, "it ended, but is no whole answer".into())
            }),
            _ => Ok(reading),
        }
    }

    fn circuits(&self) -> Vec<(&'static str, CircuitState)> {
        self.circuits.iter().map(|(name, circuit)| (*name, circuit_state(circuit.state()))).collect()
    }

    fn account(&self, session: &str) -> Option<Account> {
        let budget = self.ledger.budget(session)?;
        Some(Account {
            limit: budget.limit(),
            spent: budget.spent(),
            reserved: budget.reserved(),
            estimated: budget.spend().unknown(),
        })
    }

    fn transitions(&self) -> Vec<Transition> {
        self.transitions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn failure(verdict: Verdict, message: String) -> Failure {
    let class = verdict.class();
    let denied = class == Class::Denied(Denier::Budget);
    Failure { classed: class != Class::Unknown, denied, ..Failure::new(class.to_string(), message) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Conversation, Job, ToolCall};
    use crate::oracle::judge;
    use crate::script::{PROVIDERS, Script, Weather};
    use futures_util::future::join_all;
    use serde_json::json;

    async fn asked(weather: [Weather; 3], step: Step, times: usize) -> Vec<Result<Reading, Failure>> {
        // The 10 s to the first word, and between words, are half a second here: nothing but a stall takes as long, also on a busy machine.
        let day = Day::begin(Pace { factor: 20.0 });
        let script = Arc::new(Script::steady(weather));
        let providers: Vec<_> =
            (0..PROVIDERS.len()).map(|index| Provider::start(index, &script, day).unwrap()).collect();
        let stack = Stack::new(&providers, day).unwrap();
        let job = Job::draw(1, 0, 0);
        join_all((0..times).map(|number| {
            let mut conversation = Conversation::in_session(&number.to_string(), &job);
            conversation.planned(&json!({"weight_kg": job.weight()}).to_string());
            if step == Step::Summary {
                conversation.called(&ToolCall::default(), &json!({"price_eur": job.price()}));
            }
            stack.call(step, conversation.request(step, &providers[0].url), None)
        }))
        .await
    }

    #[tokio::test]
    async fn what_an_agent_gets_is_whole_though_streams_break() {
        let weather = [Weather::Streams(1.0), Weather::Fine, Weather::Fine];
        for reading in asked(weather, Step::Tool, 30).await {
            let answer = reading.unwrap().answer;
            assert_eq!(judge(Step::Tool, &Job::draw(1, 0, 0), &answer), Ok(()));
        }
    }

    #[tokio::test]
    async fn what_a_person_has_begun_to_read_ends_with_an_error_and_never_as_an_answer() {
        let weather = [Weather::Streams(1.0), Weather::Fine, Weather::Fine];
        let mut shown = 0;
        for reading in asked(weather, Step::Summary, 60).await {
            match reading {
                Ok(reading) => {
                    assert_eq!(judge(Step::Summary, &Job::draw(1, 0, 0), &reading.answer), Ok(()));
                }
                Err(failure) => {
                    assert!(failure.shown && failure.classed, "{failure:?}");
                    shown += 1;
                }
            }
        }
        assert!(shown > 0);
    }
}
