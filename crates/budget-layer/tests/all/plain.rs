//! Most calls have no scope of their own until something is recorded in it. Whatever happens in a call, when and on which thread, it is
//! charged as one whose scope is there from the beginning, as it is where there is a book.

use std::{
    fmt::Debug,
    future::{Future, poll_fn},
    mem::forget,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use budget_layer::{AllPass, Allowance, Book, Budget, BudgetBuilder, BudgetLayer, Fixed, Labels};
use failsoft_core::{
    Attempt, BoxError, Call, Class, Deferred, Denier, ErrorsOnly, Fault, Mark, Slot, Usage, Verdict,
};
use proptest::prelude::*;
use tower::{Layer as _, Service as _, ServiceExt as _};

type Task = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// What a call does, one after the other.
#[derive(Clone, Debug)]
enum Do {
    Wait,
    /// A reader opens, and says so much.
    Read(Option<u64>),
    /// The same, and ends only when all is over.
    ReadLate(Option<u64>),
    TakeAttempt,
    GiveBack,
    TakeRetry {
        sent: bool,
    },
    Record,
    /// In the scope of a retry or of any other layer.
    Deferred(Option<u32>, Vec<Self>),
    /// In a call that begins here.
    Call(Vec<Self>),
    /// In a call that began outside.
    Elsewhere(Vec<Self>),
    /// Through so many budgets more.
    Budgets(u8, Vec<Self>),
    Panic,
    /// Ends with an error.
    Fail(Failure),
}

#[derive(Clone, Copy, Debug)]
enum Failure {
    /// Nobody knows what it cost.
    Lost,
    /// It was turned down, and cost nothing.
    TurnedDown,
    /// A layer further in said no.
    Denied,
}

impl Failure {
    fn error(self) -> BoxError {
        match self {
            Self::Lost => "lost".into(),
            Self::TurnedDown => std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into(),
            Self::Denied => Fault::with_verdict(Verdict::of(Class::Denied(Denier::Circuit)), "test").into(),
        }
    }
}

/// What all calls of a run share.
struct World {
    /// Whether each budget's scope is there from the beginning.
    in_full: bool,
    budgets: Mutex<Vec<Budget>>,
    elsewhere: Call,
    late: Mutex<Vec<Slot>>,
    /// What the calls were told.
    told: Mutex<Vec<String>>,
}

impl World {
    fn new(in_full: bool) -> Arc<Self> {
        Arc::new(Self {
            in_full,
            budgets: Mutex::default(),
            elsewhere: Call::begin(),
            late: Mutex::default(),
            told: Mutex::default(),
        })
    }

    fn tell(&self, what: &str, told: impl Debug) {
        self.told.lock().unwrap().push(format!("{what}: {told:?}"));
    }

    /// Has the layer that a builder makes, and remembers its budgets.
    fn layer<K: Clone>(
        &self,
        builder: BudgetBuilder<K, Fixed, AllPass, ErrorsOnly>,
    ) -> BudgetLayer<K, Fixed, AllPass, ErrorsOnly> {
        let layer = builder.build().unwrap();
        let budgets = layer.ledgers().iter().map(|ledger| ledger.unkeyed().clone());
        self.budgets.lock().unwrap().extend(budgets);
        layer
    }

    /// A service behind three budgets.
    fn service(self: &Arc<Self>, limit: u64) -> Budgets {
        let builder =
            BudgetLayer::builder().tokens(limit).soft_line(0.5).estimate_fixed(10).classify(ErrorsOnly);
        let builder = builder.also(Allowance::calls(limit / 5)).also(Allowance::concurrent(7));
        let world = Arc::clone(self);
        let run = move |script: Script| run(Arc::clone(&world), script);
        if self.in_full {
            let layer = self.layer(builder.book(Book::new(), |_: &Script| Labels::new()));
            Budgets(layer.layer(tower::service_fn(run)).boxed_clone())
        } else {
            Budgets(self.layer(builder).layer(tower::service_fn(run)).boxed_clone())
        }
    }
}

#[derive(Clone)]
struct Budgets(tower::util::BoxCloneService<Script, (), BoxError>);

type Script = Arc<[Do]>;

/// A future in a scope that opens for each poll.
struct Within<F>(Deferred, F);

impl<F: Future + Unpin> Future for Within<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self(scope, future) = &mut *self;
        scope.enter(|| Pin::new(future).poll(cx))
    }
}

fn run(world: Arc<World>, script: Script) -> Task {
    Box::pin(async move {
        for what in script.iter() {
            one(&world, what.clone()).await?;
        }
        Ok(())
    })
}

async fn one(world: &Arc<World>, what: Do) -> Result<(), BoxError> {
    let inner = |script: Vec<Do>| run(Arc::clone(world), script.into());
    let usage = |output: Option<u64>| Usage { output, ..Usage::default() };
    match what {
        Do::Wait => {
            let mut waited = false;
            poll_fn(|_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending })
                .await;
        }
        Do::Read(output) => {
            let mut slot = Call::slot().unwrap();
            slot.set(&usage(output));
        }
        Do::ReadLate(output) => {
            let mut slot = Call::slot().unwrap();
            slot.set(&usage(output));
            world.late.lock().unwrap().push(slot);
        }
        Do::TakeAttempt => world.tell("attempt", Call::take_attempt()),
        Do::GiveBack => Call::give_attempt_back(),
        Do::TakeRetry { sent } => {
            let taken = Call::take_retry();
            world.tell("retry", taken.as_ref().err());
            if let (Ok(mut taken), true) = (taken, sent) {
                taken.sent();
            }
        }
        Do::Record => Call::record(Attempt::new("test", Verdict::of(Class::Transient))),
        Do::Deferred(retries, script) => {
            let scope = retries.map_or_else(Deferred::new, Deferred::retrying);
            Within(scope, inner(script)).await?;
        }
        Do::Call(script) => Call::options().mark(Mark::NoCache).begin().scope(inner(script)).await?,
        Do::Elsewhere(script) => world.elsewhere.scope(inner(script)).await?,
        Do::Budgets(more, script) => {
            let script = match more.checked_sub(1) {
                Some(less) => vec![Do::Budgets(less, script)],
                None => script,
            };
            let Budgets(mut service) = world.service(60);
            let result = service.ready().await?.call(script.into()).await;
            world.tell("through", result.map_err(|error| error.to_string()));
        }
        Do::Panic => panic!("in the service"),
        Do::Fail(failure) => return Err(failure.error()),
    }
    Ok(())
}

/// What becomes of calls that run at once, each of which may be dropped after some polls.
#[derive(Debug, PartialEq)]
struct Seen {
    told: Vec<String>,
    ends: Vec<Option<String>>,
    /// When all calls are over, and when everything is.
    budgets: [Vec<String>; 2],
}

fn seen(in_full: bool, calls: &[(Vec<Do>, usize)], turns: &[usize]) -> Seen {
    let world = World::new(in_full);
    let service = world.service(90);
    let mut running: Vec<Option<(Task, usize)>> = calls
        .iter()
        .map(|(script, polls)| {
            let Budgets(service) = service.clone();
            let call: Task = Box::pin(service.oneshot(script.clone().into()));
            Some((call, *polls))
        })
        .collect();
    let mut ends: Vec<Option<String>> = vec![None; calls.len()];
    for (turn, which) in turns.iter().enumerate() {
        let which = which % calls.len();
        let Some((mut call, polls)) = running[which].take() else { continue };
        if polls == 0 {
            continue;
        }
        let mut poll =
            || catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(&mut Context::from_waker(Waker::noop()))));
        // Now and then another thread goes on with it.
        let polled = if turn % 3 == 0 {
            std::thread::scope(|scope| scope.spawn(poll).join().unwrap())
        } else {
            poll()
        };
        match polled {
            Ok(Poll::Pending) => running[which] = Some((call, polls - 1)),
            Ok(Poll::Ready(result)) => {
                ends[which] = Some(format!("{:?}", result.map_err(|err| err.to_string())));
            }
            Err(_) => ends[which] = Some("panic".into()),
        }
        assert!(!Call::is_current(), "nothing is left on the thread");
    }
    drop(running);
    let standing = || {
        let budgets = world.budgets.lock().unwrap();
        let of = |budget: &Budget| {
            format!("{} of {}, {:?}, {:?}", budget.spent(), budget.reserved(), budget.line(), budget.spend())
        };
        budgets.iter().map(of).collect::<Vec<_>>()
    };
    let when_calls_are_over = standing();
    drop(std::mem::take(&mut *world.late.lock().unwrap()));
    let told = world.told.lock().unwrap().clone();
    Seen { told, ends, budgets: [when_calls_are_over, standing()] }
}

fn scripts() -> impl Strategy<Value = Vec<Do>> {
    let output = || proptest::option::of(0_u64..25);
    let leaf = prop_oneof![
        4 => Just(Do::Wait),
        2 => output().prop_map(Do::Read),
        1 => output().prop_map(Do::ReadLate),
        2 => Just(Do::TakeAttempt),
        1 => Just(Do::GiveBack),
        2 => any::<bool>().prop_map(|sent| Do::TakeRetry { sent }),
        1 => Just(Do::Record),
        1 => Just(Do::Panic),
        2 => prop_oneof![Just(Failure::Lost), Just(Failure::TurnedDown), Just(Failure::Denied)].prop_map(Do::Fail),
    ];
    let script = proptest::collection::vec(leaf, 0..4);
    script.prop_recursive(6, 40, 4, |script| {
        let within = prop_oneof![
            (proptest::option::of(0_u32..3), script.clone())
                .prop_map(|(retries, script)| Do::Deferred(retries, script)),
            script.clone().prop_map(Do::Call),
            script.clone().prop_map(Do::Elsewhere),
            (0_u8..6, script.clone()).prop_map(|(more, script)| Do::Budgets(more, script)),
        ];
        (script, within, 0_usize..4).prop_map(|(mut script, within, at)| {
            script.insert(at.min(script.len()), within);
            script
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_call_is_charged_as_if_its_scope_had_been_there_from_the_beginning(
        calls in proptest::collection::vec((scripts(), 0_usize..9), 1..6),
        turns in proptest::collection::vec(0_usize..6, 0..60),
    ) {
        // What panics says so, many times.
        prop_assert_eq!(seen(false, &calls, &turns), seen(true, &calls, &turns));
    }
}

/// What a service behind three budgets does, at its call and at its poll; gives what was spent, and reserved meanwhile.
fn through(does: impl Fn() + Clone + Send + 'static) -> Vec<(u64, u64)> {
    let builder = BudgetLayer::builder().tokens(1_000).estimate_fixed(10).classify(ErrorsOnly);
    let layer = builder.also(Allowance::calls(100)).also(Allowance::concurrent(5)).build().unwrap();
    let at_poll = does.clone();
    let service = move |()| {
        does();
        let does = at_poll.clone();
        poll_fn(move |_| {
            does();
            Poll::Ready(Ok::<_, BoxError>(()))
        })
    };
    let mut call = Box::pin(layer.layer(tower::service_fn(service)).oneshot(()));
    let poll = || call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
    let _ = catch_unwind(AssertUnwindSafe(poll));
    assert!(!Call::is_current() && Call::current().is_none(), "nothing is left on the thread");
    drop(call);
    layer.ledgers().iter().map(|ledger| (ledger.unkeyed().spent(), ledger.unkeyed().reserved())).collect()
}

#[test]
fn where_nothing_is_recorded_there_is_no_call() {
    assert_eq!(through(|| assert!(!Call::is_current())), [(10, 0), (1, 0), (0, 0)]);
    // Whoever asks for the call has one.
    assert_eq!(
        through(|| assert!(Call::current().is_some() && Call::is_current())),
        [(10, 0), (1, 0), (0, 0)]
    );
}

#[test]
fn a_scope_that_never_ends_takes_nothing_away() {
    let forgets = || {
        forget(Deferred::new().try_begin());
        Call::take_retry().unwrap().sent();
    };
    assert_eq!(through(forgets), [(10, 0), (3, 0), (0, 0)]);
}
