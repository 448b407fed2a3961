//! Processes that spend from one store: each layer is a process of its own.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails ends here")]

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use budget_layer::{
    Budget, BudgetBuilder, BudgetLayer, Budgeted, Denial, Exchange, Grant, Leases, MemoryStore, Store,
};
use failsoft_core::BoxError;
use http_body_util::BodyExt as _;
use tokio_test::task::spawn;
use tower::{Layer as _, ServiceExt as _};

use crate::common::{Answer, Charged, Model, Request, Step, request, usage};

pub const SECOND: Duration = Duration::from_secs(1);
pub const LASTS: Duration = Duration::from_secs(30);

/// A store that can be made to fail.
#[derive(Clone)]
pub struct Flaky {
    pub store: MemoryStore,
    how: Arc<Mutex<How>>,
    asked: Arc<AtomicU64>,
    late: Arc<Mutex<Vec<Exchange>>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    Answers,
    Fails,
    /// What it was told counts; nobody hears what it says.
    LosesAnswers,
    Hangs,
    /// It gets it later, when whoever asked has given up.
    Late,
    Slow,
}

impl Flaky {
    pub fn new() -> Self {
        Self {
            store: MemoryStore::lasting(LASTS),
            how: Arc::new(Mutex::new(How::Answers)),
            asked: Arc::default(),
            late: Arc::default(),
        }
    }

    pub fn now(&self, how: How) {
        *self.how.lock().unwrap() = how;
    }

    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// What was late comes, the last first, and each twice.
    pub async fn deliver(&self) {
        let late = std::mem::take(&mut *self.late.lock().unwrap());
        for exchange in late.into_iter().rev() {
            for _ in 0..2 {
                let _ = self.store.exchange(exchange.clone()).await;
            }
        }
    }

    pub fn leases(&self) -> Leases {
        Leases::from(self.clone()).each(100)
    }
}

impl Store for Flaky {
    async fn exchange(&self, exchange: Exchange) -> Result<Grant, BoxError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let how = *self.how.lock().unwrap();
        match how {
            How::Answers => self.store.exchange(exchange).await,
            How::Fails => Err("down".into()),
            How::LosesAnswers => {
                self.store.exchange(exchange).await?;
                Err("lost".into())
            }
            How::Hangs => pending().await,
            How::Late => {
                self.late.lock().unwrap().push(exchange);
                pending().await
            }
            How::Slow => {
                tokio::time::sleep(SECOND / 2).await;
                self.store.exchange(exchange).await
            }
        }
    }
}

/// One process.
pub struct Process<K = budget_layer::OneForAll> {
    pub layer: BudgetLayer<K, budget_layer::Fixed>,
    pub model: Model,
}

pub type Out = Charged;
pub type Future = tokio_test::task::Spawn<
    std::pin::Pin<Box<dyn std::future::Future<Output = Result<Out, BoxError>> + Send>>,
>;

/// Calls of 10 tokens.
pub fn process(leases: Leases, limit: u64) -> Process {
    with(leases, |builder| builder.tokens(limit))
}

pub fn with(leases: Leases, change: impl FnOnce(BudgetBuilder) -> BudgetBuilder) -> Process {
    let layer = change(BudgetLayer::builder().store(leases)).estimate_fixed(10).build().unwrap();
    Process { layer, model: Model::new() }
}

impl Process {
    pub fn budget(&self) -> &Budget {
        self.layer.budget()
    }
}

impl<K: budget_layer::Keyed<Request> + Clone> Process<K> {
    pub fn service(&self) -> Budgeted<Model, K, budget_layer::Fixed> {
        self.layer.layer(self.model.clone())
    }

    pub fn start(&self, request: Request) -> Future
    where
        K: Send + 'static,
    {
        spawn(Box::pin(self.service().oneshot(request)))
    }

    /// A whole call that uses so much; the error of one that is denied.
    pub async fn call(&self, request: Request, used: u64) -> Result<(), BoxError>
    where
        K: Send + 'static,
    {
        let mut call = self.start(request);
        loop {
            match call.poll() {
                Poll::Ready(Ok(response)) => {
                    response.into_body().collect().await?;
                    return Ok(());
                }
                Poll::Ready(Err(err)) => return Err(err),
                Poll::Pending if self.model.waiting() > 0 => {
                    let asked = self.model.next();
                    let slot = asked.slot();
                    asked.send(Ok(Answer::read(slot, [Step::Told(usage(0, used))])));
                }
                // It waits for the store.
                Poll::Pending => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }

    /// As many calls as pass.
    pub async fn calls(&self, most: u64) -> u64
    where
        K: Send + 'static,
    {
        let mut passed = 0;
        while passed < most && self.call(request(), 10).await.is_ok() {
            passed += 1;
        }
        passed
    }
}

#[track_caller]
pub fn denial(err: &BoxError) -> &Denial {
    Denial::find(&**err).expect("a budget said no")
}
