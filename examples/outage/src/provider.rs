//! A simulated OpenAI-compatible provider: a real axum server on loopback that acts out its column of the script and
//! keeps its own books.

use crate::books::{Books, Ended, Entry, Tab};
use crate::clock::Day;
use crate::events;
use crate::job::SESSION;
use crate::model::{Completion, Question};
use crate::script::{Break, Fault, PROVIDERS, Script};
use crate::socket::{Door, Peer, Reset};
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use reqwest::Url;
use serde_json::json;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// A running provider. Dropping it closes its sockets.
pub(crate) struct Provider {
    pub(crate) name: &'static str,
    /// Where chat completions are.
    pub(crate) url: Url,
    books: Arc<Books>,
    server: JoinHandle<()>,
}

impl Provider {
    pub(crate) fn start(index: usize, script: &Arc<Script>, day: Day) -> io::Result<Self> {
        let door = Door::open(index, Arc::clone(script), day)?;
        let url = format!("http://{}/v1/chat/completions", door.address());
        let url = url.parse().map_err(io::Error::other)?;
        let books = Arc::<Books>::default();
        let desk = Desk { index, script: Arc::clone(script), day, books: Arc::clone(&books) };
        let app = Router::new().route("/v1/chat/completions", post(chat)).with_state(desk);
        let app = app.into_make_service_with_connect_info::<Peer>();
        let server = tokio::spawn(async move {
            // It only ends by being aborted.
            let _ended = axum::serve(door, app).await;
        });
        Ok(Self { name: PROVIDERS[index], url, books, server })
    }

    /// Requests that were read from a socket.
    pub(crate) fn requests(&self) -> u64 {
        self.books.requests()
    }

    /// The bill, when the last request is over: clients that went away are noticed within moments.
    pub(crate) async fn bill(&self) -> Vec<Entry> {
        for _ in 0..500 {
            if self.books.open() == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.books.entries()
    }

    /// Requests that are still being answered.
    pub(crate) fn open(&self) -> usize {
        self.books.open()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[derive(Clone)]
struct Desk {
    index: usize,
    script: Arc<Script>,
    day: Day,
    books: Arc<Books>,
}

async fn chat(
    State(desk): State<Desk>,
    ConnectInfo(Peer(connection)): ConnectInfo<Peer>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let ordinal = desk.books.number();
    let question = match Question::read(&body) {
        Ok(question) => question,
        Err(wrong) => {
            return error(StatusCode::BAD_REQUEST, &wrong, "invalid_request_error", None);
        }
    };
    let session = headers.get(SESSION).and_then(|session| session.to_str().ok()).unwrap_or_default();
    let mut tab = Tab::open(&desk.books, session, question.step);
    let fault = desk.script.fault(desk.index, desk.day.now(), ordinal, question.step);
    let latency = desk.script.latency(desk.index, ordinal);
    let turned_down = |mut tab: Tab, response| {
        tab.end(Ended::TurnedDown);
        response
    };
    match fault {
        None => {
            desk.day.sleep(latency).await;
            desk.answer(&question, &question.answer(ordinal), None, tab)
        }
        Some(Fault::Wrong(wrong)) => {
            desk.day.sleep(latency).await;
            desk.answer(&question, &question.wrong_answer(ordinal, wrong), None, tab)
        }
        Some(Fault::Stream(kind)) => {
            desk.day.sleep(latency).await;
            desk.answer(&question, &question.answer(ordinal), Some(kind), tab)
        }
        Some(Fault::Slow { by, after_head: false }) => {
            desk.day.sleep(by).await;
            desk.answer(&question, &question.answer(ordinal), None, tab)
        }
        Some(Fault::Slow { by, after_head: true }) => {
            desk.day.sleep(latency).await;
            let completion = question.answer(ordinal);
            if question.stream.is_some() {
                return desk.answer(&question, &completion, Some(Break::SlowFirst), tab);
            }
            tab.add(completion.total_tokens());
            halves(&completion, desk.day.pace.real(by), true, tab)
        }
        Some(Fault::CutBody) => {
            desk.day.sleep(latency).await;
            let completion = question.answer(ordinal);
            if question.stream.is_some() {
                return desk.answer(&question, &completion, Some(Break::Cut), tab);
            }
            tab.add(completion.total_tokens());
            halves(&completion, desk.day.pace.real(Duration::from_millis(100)), false, tab)
        }
        Some(Fault::Reset) => {
            desk.day.sleep(latency / 2).await;
            never(&connection).await
        }
        Some(Fault::RateLimited { left }) => turned_down(tab, rate_limited(&desk, left, ordinal)),
        Some(Fault::Quota) => {
            let quota = error(
                StatusCode::TOO_MANY_REQUESTS,
                "You exceeded your current quota, please check your plan and billing details.",
                "insufficient_quota",
                Some("insufficient_quota"),
            );
            turned_down(tab, quota)
        }
        Some(Fault::ServerError { status, html }) => {
            desk.day.sleep(latency / 4).await;
            turned_down(tab, server_error(status, html))
        }
    }
}

impl Desk {
    /// Whole or streamed, as it was asked for. What is no completion comes whole in any case.
    fn answer(
        &self,
        question: &Question,
        completion: &Completion,
        fault: Option<Break>,
        mut tab: Tab,
    ) -> Response {
        if let Some(usage) = question.stream
            && let Some(acts) = events::acts(completion, usage, fault)
        {
            return respond(StatusCode::OK, "text/event-stream", events::body(acts, self.day, tab));
        }
        tab.add(completion.total_tokens());
        tab.end(if completion.told { Ended::Told } else { Ended::Untold });
        respond(StatusCode::OK, completion.content_type, completion.body.clone())
    }
}

/// Resets the connection; no answer ever comes.
async fn never(connection: &Reset) -> Response {
    connection.now();
    std::future::pending().await
}

/// The head and half of the body at once; then, after a pause, the other half, or the connection ends short of its
/// Content-Length.
fn halves(completion: &Completion, pause: Duration, whole: bool, mut tab: Tab) -> Response {
    let bytes = Bytes::from(completion.body.clone());
    let length = bytes.len();
    let (first, second) = (bytes.slice(..length / 2), bytes.slice(length / 2..));
    let second = async move {
        tokio::time::sleep(pause).await;
        tab.end(if whole { Ended::Told } else { Ended::Untold });
        if whole { Ok(second) } else { Err(io::Error::from(io::ErrorKind::ConnectionAborted)) }
    };
    let frames = stream::once(async move { Ok(first) }).chain(stream::once(second));
    let mut response = respond(StatusCode::OK, completion.content_type, "");
    *response.body_mut() = Body::from_stream(frames);
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    response
}

/// The forms that real rate limits come in: seconds, milliseconds beside them, or only when the window is over.
fn rate_limited(desk: &Desk, left: Duration, ordinal: u64) -> Response {
    let left = desk.day.pace.real(left);
    let message = format!(
        "Rate limit reached for {} on requests per min (RPM): Limit 500, Used 500, Requested 1. Please try again in \
         {:.3}s.",
        crate::job::MODEL,
        left.as_secs_f64()
    );
    let mut response =
        error(StatusCode::TOO_MANY_REQUESTS, &message, "requests", Some("rate_limit_exceeded"));
    let headers = response.headers_mut();
    // Rounded up, as advice is: a client that comes back a moment too early waits for nothing.
    let milliseconds = left.as_micros().div_ceil(1000);
    let seconds = format!("{:.3}", milliseconds as f64 / 1000.0);
    match ordinal % 3 {
        0 => insert(headers, "retry-after", &seconds),
        1 => {
            insert(headers, "retry-after", &seconds);
            insert(headers, "retry-after-ms", &milliseconds.to_string());
        }
        _ => {
            insert(headers, "x-ratelimit-limit-requests", "500");
            insert(headers, "x-ratelimit-remaining-requests", "0");
            insert(headers, "x-ratelimit-reset-requests", &format!("{milliseconds}ms"));
        }
    }
    response
}

fn insert(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn server_error(status: u16, html: bool) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if html {
        let reason = status.canonical_reason().unwrap_or("Overloaded");
        let page = format!(
            "<html>\r\n<head><title>{0} {reason}</title></head>\r\n<body>\r\n<center><h1>{0} {reason}</h1></center>\
             \r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n",
            status.as_u16()
        );
        return respond(status, "text/html", page);
    }
    match status.as_u16() {
        529 => error(status, "Overloaded", "overloaded_error", None),
        503 => error(
            status,
            "The engine is currently overloaded, please try again later.",
            "service_unavailable",
            None,
        ),
        _ => error(
            status,
            "The server had an error while processing your request. Sorry about that!",
            "server_error",
            None,
        ),
    }
}

fn error(status: StatusCode, message: &str, kind: &str, code: Option<&str>) -> Response {
    let body = json!({"error": {"message": message, "type": kind, "param": null, "code": code}});
    respond(status, "application/json", body.to_string())
}

fn respond(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::http_client;
    use crate::clock::Pace;
    use crate::job::{Answer, Conversation, Job, Step, ToolCall};
    use crate::oracle::judge;
    use crate::reading::{Broken, Reading, read};
    use crate::script::Weather;
    use reqwest::{Client, Request, Response};

    const PACE: Pace = Pace { factor: 100.0 };

    async fn tokens(provider: &Provider) -> u64 {
        provider.bill().await.iter().map(|entry| entry.tokens).sum()
    }

    fn provider(weather: Weather) -> Provider {
        started(Script::steady([weather, Weather::Fine, Weather::Fine])).0
    }

    fn started(script: Script) -> (Provider, Day) {
        started_at(script, PACE)
    }

    fn started_at(script: Script, pace: Pace) -> (Provider, Day) {
        let day = Day::begin(pace);
        (Provider::start(0, &Arc::new(script), day).unwrap(), day)
    }

    /// Enough for a busy machine.
    const PATIENT: Duration = Duration::from_secs(20);

    fn client() -> Client {
        http_client(PATIENT).unwrap()
    }

    fn question(provider: &Provider) -> Request {
        Conversation::about(&Job::draw(1, 0, 0)).request(Step::Plan, &provider.url)
    }

    async fn ask(provider: &Provider) -> reqwest::Result<Response> {
        client().execute(question(provider)).await
    }

    /// Until the whole body is there.
    async fn ask_fully(provider: &Provider) -> reqwest::Result<Bytes> {
        ask(provider).await?.bytes().await
    }

    #[tokio::test]
    async fn a_good_provider_answers_and_bills_what_it_says() {
        let provider = provider(Weather::Fine);
        let body = ask_fully(&provider).await.unwrap();
        assert_eq!(judge(Step::Plan, &Job::draw(1, 0, 0), &Answer::read(&body).unwrap()), Ok(()));
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["usage"]["total_tokens"], tokens(&provider).await);
        assert_eq!(provider.requests(), 1);
    }

    #[tokio::test]
    async fn a_rate_limit_gives_advice_in_each_form() {
        let limited = Duration::from_secs(500);
        let provider = provider(Weather::RateLimited { limited, open: limited });
        let mut names = Vec::new();
        for _ in 0..3 {
            let response = ask(&provider).await.unwrap();
            assert_eq!(response.status(), 429);
            for name in ["retry-after", "retry-after-ms", "x-ratelimit-reset-requests"] {
                if let Some(value) = response.headers().get(name) {
                    names.push(name);
                    let digits = value.to_str().unwrap().trim_end_matches("ms");
                    assert!(digits.parse::<f64>().unwrap() > 0.0, "{name}: {digits}");
                }
            }
            assert!(response.text().await.unwrap().contains("rate_limit_exceeded"));
        }
        assert_eq!(names, ["retry-after", "retry-after", "retry-after-ms", "x-ratelimit-reset-requests"]);
        assert_eq!((provider.requests(), tokens(&provider).await), (3, 0));
    }

    #[tokio::test]
    async fn a_spent_quota_says_so() {
        let response = ask(&provider(Weather::Quota)).await.unwrap();
        assert_eq!(response.status(), 429);
        assert!(response.text().await.unwrap().contains("\"code\":\"insufficient_quota\""));
    }

    #[tokio::test]
    async fn server_errors_come_with_json_and_with_pages() {
        let provider = provider(Weather::ServerErrors(1.0));
        let mut types = std::collections::BTreeSet::new();
        for _ in 0..20 {
            let response = ask(&provider).await.unwrap();
            assert!(response.status().is_server_error());
            types.insert(response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned());
        }
        assert_eq!(types.into_iter().collect::<Vec<_>>(), ["application/json", "text/html"]);
    }

    #[tokio::test]
    async fn cut_connections_break_before_the_head_or_in_the_body() {
        let provider = provider(Weather::Cut(1.0));
        let (mut in_head, mut in_body) = (0, 0);
        for _ in 0..20 {
            match ask(&provider).await {
                Err(error) => in_head += usize::from(error.is_request() && !error.is_connect()),
                Ok(response) => in_body += usize::from(response.bytes().await.is_err()),
            }
        }
        assert_eq!(in_head + in_body, 20);
        assert!(in_head > 0 && in_body > 0, "{in_head} and {in_body}");
        assert_eq!(provider.requests(), 20);
    }

    #[tokio::test]
    async fn a_slow_provider_outlasts_the_clients_patience() {
        // A second of patience, so that a busy machine has the time to send a head.
        let pace = Pace { factor: 20.0 };
        let provider = started_at(Script::steady([Weather::Slow(1.0), Weather::Fine, Weather::Fine]), pace).0;
        let client = http_client(pace.real(crate::client::PATIENCE)).unwrap();
        let heads = futures_util::future::join_all((0..8).map(|_| async {
            let (head, body) = match client.execute(question(&provider)).await {
                Err(error) => (false, error),
                Ok(response) => (true, response.bytes().await.unwrap_err()),
            };
            assert!(body.is_timeout(), "{body}");
            head
        }));
        let heads = heads.await;
        assert!(heads.contains(&true) && heads.contains(&false), "{heads:?}");
    }

    #[tokio::test]
    async fn a_closed_door_refuses_and_opens_again_at_the_same_address() {
        let closed = Duration::from_secs(20);
        let opens = Duration::from_secs(60);
        let (provider, day) = started(Script::closed_between(closed, opens));
        // One client, so that a connection from before is in its pool.
        let client = client();
        assert!(client.execute(question(&provider)).await.is_ok());
        day.sleep_until(closed + Duration::from_secs(10)).await;
        let error = client.execute(question(&provider)).await.unwrap_err();
        assert!(error.is_connect(), "{error:?}");
        day.sleep_until(opens + Duration::from_secs(10)).await;
        assert!(client.execute(question(&provider)).await.is_ok());
        assert_eq!(provider.requests(), 2);
    }

    async fn stream(
        provider: &Provider,
        step: Step,
        leave_after: Option<usize>,
        patience: Duration,
    ) -> Result<Reading, Broken> {
        let job = Job::draw(1, 0, 0);
        let mut conversation = Conversation::about(&job);
        conversation.planned(&json!({"weight_kg": job.weight()}).to_string());
        if step == Step::Summary {
            conversation.called(&ToolCall::default(), &json!({"price_eur": job.price()}));
        }
        let begun = tokio::time::Instant::now();
        let client = http_client(patience).unwrap();
        let response = client.execute(conversation.request(step, &provider.url)).await.unwrap();
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        read(response, begun, leave_after).await
    }

    #[tokio::test]
    async fn a_stream_is_the_answer_in_pieces() {
        let provider = provider(Weather::Fine);
        for step in [Step::Tool, Step::Summary] {
            let reading = stream(&provider, step, None, PATIENT).await.unwrap();
            assert_eq!(judge(step, &Job::draw(1, 0, 0), &reading.answer), Ok(()));
            assert!(reading.first_content.is_some());
        }
        let bill = provider.bill().await;
        assert!(bill.iter().all(|entry| entry.ended == Ended::Told && entry.tokens > 100), "{bill:?}");
        assert_eq!(bill[0].session, Job::draw(1, 0, 0).order);
    }

    #[tokio::test]
    async fn a_reader_who_hangs_up_is_noticed_and_pays_for_what_was_written() {
        let provider = started_at(Script::steady([Weather::Fine; 3]), Pace { factor: 10.0 }).0;
        assert!(stream(&provider, Step::Summary, Some(30), PATIENT).await.unwrap().left);
        let bill = provider.bill().await;
        let [Entry { ended: Ended::Left, tokens: cut, .. }] = bill[..] else { panic!("{bill:?}") };
        stream(&provider, Step::Summary, None, PATIENT).await.unwrap();
        let whole = provider.bill().await[1].tokens;
        assert!(0 < cut && cut < whole, "{cut} of {whole}");
    }

    #[tokio::test]
    async fn broken_streams_break_in_every_way() {
        // Two seconds of patience, so that a busy machine has the time for those that do not stall.
        let pace = Pace { factor: 20.0 };
        let script = Script::steady([Weather::Streams(1.0), Weather::Fine, Weather::Fine]);
        let (provider, patience) = (started_at(script, pace).0, pace.real(Duration::from_secs(40)));
        let readings =
            futures_util::future::join_all((0..40).map(|_| stream(&provider, Step::Tool, None, patience)));
        let (mut cut, mut stalled, mut ended) = (0, 0, 0);
        for reading in readings.await {
            match reading {
                Err(broken) if broken.error.is_timeout() => stalled += 1,
                Err(_) => cut += 1,
                Ok(reading) => {
                    ended += 1;
                    assert!(judge(Step::Tool, &Job::draw(1, 0, 0), &reading.answer).is_err());
                }
            }
        }
        assert!(cut > 0 && stalled > 0 && ended > 0, "{cut}, {stalled}, {ended}");
        assert!(provider.bill().await.iter().all(|entry| entry.ended != Ended::Told));
    }
}
