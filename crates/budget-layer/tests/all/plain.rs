//! Most calls have no scope of their own until something is recorded in it. Whatever happens in a call, when and on which thread, it is
//! charged as one whose scope is there from the beginning, as it is where there is a book.

use std::{
    cell::RefCell,
    fmt::Debug,
    future::{Future, poll_fn, ready},
    mem::{forget, take},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    thread,
};

use budget_layer::{Allowance, Book, Budget, BudgetLayer, Estimate, Estimator, Labels, Ledger, Snapshot};
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
    /// In a call that a closing reserve may serve.
    Final(Vec<Self>),
    /// Through so many budgets more.
    Budgets(u8, Vec<Self>),
    /// Through another budget, polled once and dropped by another thread.
    Dropped(Vec<Self>),
    /// Somebody keeps the call.
    Keep,
    /// In the call that was kept last, and taken there, it may be when that is over.
    InKept(Vec<Self>),
    /// A reader on another thread says so much.
    ReadElsewhere(Option<u64>),
    /// Somebody sets the limit, or what is spent, of one of the budgets.
    SetLimit(usize, u64),
    Restore(usize, u64),
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

/// What the budgets of a run are like.
#[derive(Clone, Copy, Debug)]
struct Terms {
    limit: u64,
    soft_line: f64,
    closing_reserve: u64,
    /// Of the 10 tokens that a call is estimated at.
    input: Option<u64>,
    cut_in_full: bool,
    /// Past the soft line only some pass.
    restricted: bool,
    free_routes: bool,
    /// The budgets further in are those of the first layer.
    shared: bool,
}

/// What all calls of a run share.
struct World {
    /// Whether each budget's scope is there from the beginning.
    in_full: bool,
    terms: Terms,
    ledgers: Mutex<Vec<Ledger>>,
    kept: Mutex<Vec<Call>>,
    elsewhere: Call,
    late: Mutex<Vec<Slot>>,
    /// What the calls were told.
    told: Mutex<Vec<String>>,
}

impl World {
    fn new(in_full: bool, terms: Terms) -> Arc<Self> {
        Arc::new(Self {
            in_full,
            terms,
            ledgers: Mutex::default(),
            kept: Mutex::default(),
            elsewhere: Call::begin(),
            late: Mutex::default(),
            told: Mutex::default(),
        })
    }

    fn tell(&self, what: &str, told: impl Debug) {
        self.told.lock().unwrap().push(format!("{what}: {told:?}"));
    }

    fn budget(&self, which: usize) -> Budget {
        let ledgers = self.ledgers.lock().unwrap();
        ledgers[which % ledgers.len()].unkeyed().clone()
    }

    /// A service behind three budgets.
    fn service(self: &Arc<Self>, limit: u64) -> Budgets {
        let terms = self.terms;
        let mut ledgers = self.ledgers.lock().unwrap();
        let mut first = BudgetLayer::builder().soft_line(terms.soft_line).alert_at(0.3);
        let mut more = [Allowance::calls(limit / 5), Allowance::concurrent(4)];
        if let ([one, two, three, ..], true) = (&ledgers[..], terms.shared) {
            first = BudgetLayer::builder().ledger(one.clone());
            more = [Allowance::shared(two.clone()), Allowance::shared(three.clone())];
        } else {
            first = first.tokens(limit).closing_reserve(terms.closing_reserve);
        }
        if terms.cut_in_full {
            first = first.charge_cut_in_full();
        }
        if terms.free_routes {
            first = first.free_routes();
        }
        let [second, third] = more;
        let passes = move |script: &Script| !terms.restricted || script.len() % 2 == 0;
        let builder = first
            .estimator(Ten { input: terms.input })
            .classify(ErrorsOnly)
            .allow_restricted(passes)
            .also(second)
            .also(third);
        let world = Arc::clone(self);
        let service = tower::service_fn(move |script: Script| {
            world.tell("free routes only", Call::is_marked(Mark::FreeOnly));
            run(Arc::clone(&world), script)
        });
        let (service, of_layer) = if self.in_full {
            let layer = builder.book(Book::new(), |_: &Script| Labels::new()).build().unwrap();
            (layer.layer(service).boxed_clone(), layer.ledgers().to_vec())
        } else {
            let layer = builder.build().unwrap();
            (layer.layer(service).boxed_clone(), layer.ledgers().to_vec())
        };
        if !terms.shared || ledgers.is_empty() {
            ledgers.extend(of_layer);
        }
        Budgets(service)
    }
}

/// Estimates 10 tokens.
#[derive(Clone, Copy)]
struct Ten {
    input: Option<u64>,
}

impl<Req> Estimator<Req> for Ten {
    fn estimate(&self, _: &Req) -> Estimate {
        self.input.map_or(Estimate::whole(10), |input| Estimate::parts(input, 10 - input))
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
        Do::Final(script) => Call::options().mark(Mark::Final).begin().scope(inner(script)).await?,
        Do::Dropped(script) => {
            let Budgets(service) = world.service(60);
            let mut call: Task = Box::pin(service.oneshot(script.into()));
            let _ = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            thread::scope(|scope| scope.spawn(move || drop(call)).join().unwrap());
        }
        Do::Keep => world.kept.lock().unwrap().extend(Call::current()),
        Do::InKept(script) => {
            let kept = world.kept.lock().unwrap().pop();
            match kept {
                Some(kept) => kept.scope(inner(script)).await?,
                None => inner(script).await?,
            }
        }
        Do::ReadElsewhere(output) => {
            let call = Call::current().unwrap();
            let read = || call.enter(Call::slot).unwrap().set(&usage(output));
            thread::scope(|scope| scope.spawn(read).join().unwrap());
        }
        Do::SetLimit(which, limit) => world.budget(which).set_limit(limit),
        Do::Restore(which, spent) => {
            let budget = world.budget(which);
            budget.restore(&Snapshot { limit: budget.limit(), spent, reserved: 0 });
        }
        Do::Budgets(more, script) => {
            let script = match more.checked_sub(1) {
                Some(less) => vec![Do::Budgets(less, script)],
                None => script,
            };
            let Budgets(mut service) = world.service(60);
            let result = service.ready().await?.call(script.into()).await;
            world.tell("through", result.map_err(|err| err.to_string()));
        }
        // Nobody is told: that would take most of the time.
        Do::Panic => resume_unwind(Box::new("in the service")),
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

fn seen(in_full: bool, terms: Terms, calls: &[(Vec<Do>, usize)], turns: &[usize]) -> Seen {
    let world = World::new(in_full, terms);
    let service = world.service(terms.limit);
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
        let polled =
            if turn % 3 == 0 { thread::scope(|scope| scope.spawn(poll).join().unwrap()) } else { poll() };
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
        let ledgers = world.ledgers.lock().unwrap();
        let of = |ledger: &Ledger| {
            let budget = ledger.unkeyed();
            format!("{:?}, {:?}, {:?}", budget.snapshot(), budget.line(), budget.spend())
        };
        ledgers.iter().map(of).collect::<Vec<_>>()
    };
    let when_calls_are_over = standing();
    drop((take(&mut *world.late.lock().unwrap()), take(&mut *world.kept.lock().unwrap())));
    assert!(world.ledgers.lock().unwrap().iter().all(|ledger| ledger.unkeyed().reserved() == 0));
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
        1 => Just(Do::Keep),
        1 => output().prop_map(Do::ReadElsewhere),
        1 => (0_usize..9, 0_u64..120).prop_map(|(which, limit)| Do::SetLimit(which, limit)),
        1 => (0_usize..9, 0_u64..120).prop_map(|(which, spent)| Do::Restore(which, spent)),
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
            script.clone().prop_map(Do::Final),
            script.clone().prop_map(Do::Dropped),
            script.clone().prop_map(Do::InKept),
            (0_u8..6, script.clone()).prop_map(|(more, script)| Do::Budgets(more, script)),
        ];
        (script, within, 0_usize..4).prop_map(|(mut script, within, at)| {
            script.insert(at.min(script.len()), within);
            script
        })
    })
}

fn terms() -> impl Strategy<Value = Terms> {
    let figures = (20_u64..300, prop_oneof![Just(0.1), Just(0.5), Just(1.0)], 0_u64..20);
    let input = proptest::option::of(0_u64..=10);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (figures, input, flags).prop_map(|((limit, soft_line, closing_reserve), input, flags)| {
        let (cut_in_full, restricted, free_routes, shared) = flags;
        Terms { limit, soft_line, closing_reserve, input, cut_in_full, restricted, free_routes, shared }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_call_is_charged_as_if_its_scope_had_been_there_from_the_beginning(
        terms in terms(),
        calls in proptest::collection::vec((scripts(), 0_usize..9), 1..6),
        turns in proptest::collection::vec(0_usize..6, 0..60),
    ) {
        prop_assert_eq!(seen(false, terms, &calls, &turns), seen(true, terms, &calls, &turns));
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
    assert_eq!(catch_unwind(AssertUnwindSafe(poll)).ok(), Some(true), "nothing in it panicked");
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
    let forgets = || {
        Deferred::retrying(0).enter(|| {
            forget(Deferred::new().try_begin());
            drop(Call::slot());
        });
        Call::take_retry().unwrap().sent();
    };
    assert_eq!(through(forgets), [(20, 0), (3, 0), (0, 0)]);
}

#[test]
fn whoever_asks_for_the_call_makes_nothing_of_the_scopes_that_layers_have_opened_inside_its_budget() {
    let asks = || {
        let (mut retry, mut other) = (Deferred::retrying(3), Deferred::routing());
        let call = retry.enter(|| {
            let call = other.enter(|| {
                drop(Call::slot());
                assert!(Call::is_current() && Call::is_routed());
                Call::current().unwrap()
            });
            assert!(Call::is_current() && !Call::is_routed());
            call
        });
        assert!(retry.call().is_none() && other.call().is_none(), "as where the budget's scope is a call");
        // What is taken there later is taken in this call too.
        retry.enter(|| Call::take_retry().unwrap().sent());
        assert!(retry.call().is_some() && call.further_attempts() > 0);
    };
    assert_eq!(through(asks), [(20, 0), (3, 0), (0, 0)]);
}

#[test]
fn a_call_that_is_kept_until_its_thread_ends_is_settled_then() {
    /// Goes on with a call, or drops it, while its thread ends: whatever thread-local variables are gone by then.
    struct Late {
        call: Task,
        goes_on: bool,
    }

    impl Drop for Late {
        fn drop(&mut self) {
            while self.goes_on
                && self.call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
            {}
        }
    }

    thread_local! {
        static EARLIER: RefCell<Option<Late>> = const { RefCell::new(None) };
        static LATER: RefCell<Option<Late>> = const { RefCell::new(None) };
    }

    let inner = BudgetLayer::builder().estimate_fixed(10).classify(ErrorsOnly).build().unwrap();
    let outer = BudgetLayer::builder().estimate_fixed(10).classify(ErrorsOnly).build().unwrap();
    for (goes_on, asks) in [(false, false), (true, false), (true, true)] {
        let before = outer.budget().spend().calls();
        let service = tower::service_fn(move |()| {
            let mut polls = 0;
            poll_fn(move |_| {
                polls += 1;
                if asks && polls > 1 {
                    Deferred::new().enter(|| drop((Call::slot(), Call::take_retry())));
                }
                if polls > 1 { Poll::Ready(Ok::<_, BoxError>(())) } else { Poll::Pending }
            })
        });
        let service = outer.layer(inner.layer(service));
        let begin = || {
            let mut call: Task = Box::pin(service.clone().oneshot(()));
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            Some(Late { call, goes_on })
        };
        let both = || {
            // It is there before what the calls need of the thread, and goes after that.
            EARLIER.set(None);
            let call = begin();
            EARLIER.set(call);
            LATER.set(begin());
        };
        thread::scope(|scope| scope.spawn(both).join().unwrap());
        for layer in [&outer, &inner] {
            let budget = layer.budget();
            assert_eq!((budget.spend().calls() - before, budget.reserved()), (2, 0), "{goes_on} {asks}");
        }
    }
}

// It told nobody what it used, and the budget around it counted an estimate.
#[test]
fn a_call_that_is_spawned_lies_in_the_budget_that_it_began_in() {
    let layer = || BudgetLayer::builder().estimate_fixed(100).classify(ErrorsOnly).build().unwrap();
    let (outer, inner) = (layer(), layer());
    let model = |()| {
        poll_fn(|_| {
            Call::slot().unwrap().set(&Usage { input: Some(3), output: Some(4), ..Usage::default() });
            Poll::Ready(Ok::<_, BoxError>(()))
        })
    };
    let within = inner.clone();
    let spawning = move |()| {
        // It is called here, and polled elsewhere.
        let call = within.layer(tower::service_fn(model)).call(());
        thread::spawn(|| assert!(tokio_test::task::spawn(call).poll().is_ready())).join().unwrap();
        ready(Ok::<_, BoxError>(()))
    };
    let mut call = tokio_test::task::spawn(outer.layer(tower::service_fn(spawning)).oneshot(()));
    assert!(call.poll().is_ready());
    assert_eq!((outer.budget().spent(), inner.budget().spent()), (7, 7));
}
