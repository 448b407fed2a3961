//! A service that answers what it is told to, and how it is asked.

use super::*;

pub(crate) type BoxBody = UnsyncBoxBody<Bytes, BoxError>;
pub(crate) type Req = Request<String>;

pub(crate) const CHAT: &str = "/v1/chat/completions";

/// What a [`Model`] answers.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) pieces: Vec<Result<Bytes, &'static str>>,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) finish: Option<Finish>,
    pub(crate) degraded: Option<StandIn>,
    pub(crate) after: Duration,
}

impl Answer {
    pub(crate) fn good(text: &str) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type", "application/json")],
            pieces: vec![Ok(Bytes::from(text.to_owned()))],
            verdict: Some(Verdict::SUCCESS),
            finish: None,
            degraded: None,
            after: Duration::ZERO,
        }
    }

    pub(crate) fn events(pieces: &[&str]) -> Self {
        Self {
            headers: vec![
                ("content-type", "text/event-stream; charset=utf-8"),
                ("cache-control", "no-cache"),
            ],
            pieces: pieces.iter().map(|piece| Ok(Bytes::from((*piece).to_owned()))).collect(),
            ..Self::good("")
        }
    }

    pub(crate) fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(crate) fn response(&self) -> Response<BoxBody> {
        let mut response = Response::builder().status(self.status);
        for (name, value) in &self.headers {
            response = response.header(*name, *value);
        }
        let pieces =
            self.pieces.clone().into_iter().map(|piece| piece.map(Frame::data).map_err(BoxError::from));
        let body = StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync();
        let mut response = response.body(body).unwrap();
        if self.verdict.is_some() || self.finish.is_some() {
            let insight = Insight::new();
            insight.learn(|facts| (facts.verdict, facts.finish) = (self.verdict, self.finish.clone()));
            response.extensions_mut().insert(insight);
        }
        if let Some(by) = self.degraded {
            response.extensions_mut().insert(Degraded::by(by));
        }
        response
    }
}

/// Answers what is next, or the last again; panics when it is called unready.
pub(crate) struct Model {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    calls: Arc<AtomicU32>,
    /// Of those that answer later: how many run.
    pub(crate) running: Arc<AtomicUsize>,
    ready: bool,
}

impl Model {
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers = Arc::new(Mutex::new(answers.into_iter().collect()));
        Self { answers, calls: Arc::default(), running: Arc::default(), ready: false }
    }

    pub(crate) fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Clone for Model {
    fn clone(&self) -> Self {
        Self {
            answers: self.answers.clone(),
            calls: self.calls.clone(),
            running: self.running.clone(),
            ready: false,
        }
    }
}

pub(crate) struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Service<Req> for Model {
    type Response = Response<BoxBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<BoxBody>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Req) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called unready");
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.running.fetch_add(1, Ordering::Relaxed);
        let running = Running(self.running.clone());
        let answer = {
            let mut answers = self.answers.lock().unwrap();
            if answers.len() > 1 { answers.pop_front().unwrap() } else { answers.front().unwrap().clone() }
        };
        Box::pin(async move {
            let _running = running;
            if !answer.after.is_zero() {
                tokio::time::sleep(answer.after).await;
            }
            if answer.status == 0 {
                return Err("connection reset".into());
            }
            Ok(answer.response())
        })
    }
}

pub(crate) fn tenant(request: &Req) -> Option<String> {
    Some(request.headers().get("x-tenant")?.to_str().ok()?.to_owned())
}

pub(crate) fn cache() -> Cache<impl fallback_layer::cache::Scope<Req>> {
    Cache::builder().scope(tenant).build().unwrap()
}

pub(crate) fn ask_of(tenant: &'static str, body: &str) -> Req {
    Request::post(CHAT).header("x-tenant", tenant).body(body.to_owned()).unwrap()
}

pub(crate) fn ask(body: &str) -> Req {
    ask_of("t", body)
}

pub(crate) async fn read<B>(response: Response<B>) -> String
where
    B: Body<Data = Bytes, Error = BoxError>,
{
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// Asks and reads to the end.
pub(crate) async fn get<S, B>(service: &S, request: Req) -> String
where
    S: Service<Req, Response = Response<B>, Error = BoxError> + Clone,
    B: Body<Data = Bytes, Error = BoxError>,
{
    read(service.clone().oneshot(request).await.unwrap()).await
}

pub(crate) const WHOLE: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}"#;
pub(crate) const STREAM: [&str; 3] = [
    "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"H\"},\"finish_reason\":null}]}\n\n",
    "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"i\"},\"finish_reason\":\"stop\"}]}\n\n",
    "data: [DONE]\n\n",
];
