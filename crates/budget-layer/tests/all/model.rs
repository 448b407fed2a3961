//! The layer beside a slow and obvious model, under random calls, streams, cancels, attempts and late usages.

use crate::common::{Answer, Asked, Model, Request, Step, refused, request, reset, usage};
use budget_layer::{BudgetLayer, Budgeted, Charge};
use failsoft_core::{BodyJudge, BoxError, Call, Slot, Watched};
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use tokio_test::task::{Spawn, spawn};
use tower::{Layer as _, ServiceExt as _};

const LIMIT: u64 = 400;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A call with an estimate.
    Start(u64),
    /// Another attempt of a call opens its slot.
    Attempt(usize),
    /// The youngest attempt says what it used so far.
    Say(usize, u64),
    /// The youngest attempt ends.
    EndAttempt(usize),
    /// A retry further in asks for another attempt.
    Again(usize),
    /// It was not made after all.
    Back(usize),
    /// The call is answered by a body.
    Answer(usize),
    /// The call is answered by a stream, whose reader learns so much from each of its pieces.
    Stream(usize, [u64; 3]),
    /// A piece of the body is read.
    Piece(usize),
    /// The call fails: sent, or not.
    Fail(usize, bool),
    /// The body is read to its end.
    Read(usize),
    /// The caller drops the call, wherever it is.
    Drop(usize),
    /// An attempt that nobody knew of ends after all.
    Late(usize, u64),
    SetLimit(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let call = 0..6_usize;
    prop_oneof![
        5 => (1..120_u64).prop_map(Op::Start),
        4 => call.clone().prop_map(Op::Attempt),
        4 => (call.clone(), 0..60_u64).prop_map(|(call, used)| Op::Say(call, used)),
        4 => call.clone().prop_map(Op::EndAttempt),
        3 => call.clone().prop_map(Op::Again),
        1 => call.clone().prop_map(Op::Back),
        2 => call.clone().prop_map(Op::Answer),
        2 => (call.clone(), [0..60_u64, 0..60, 0..60]).prop_map(|(call, told)| Op::Stream(call, told)),
        4 => call.clone().prop_map(Op::Piece),
        2 => (call.clone(), any::<bool>()).prop_map(|(call, sent)| Op::Fail(call, sent)),
        3 => call.clone().prop_map(Op::Read),
        2 => call.clone().prop_map(Op::Drop),
        1 => (call, 0..60_u64).prop_map(|(call, used)| Op::Late(call, used)),
        1 => (0..2 * LIMIT).prop_map(Op::SetLimit),
    ]
}

type Out = http::Response<Watched<Answer, BodyJudge, Charge>>;
type Future = Spawn<std::pin::Pin<Box<dyn std::future::Future<Output = Result<Out, BoxError>>>>>;

/// What is real of a call.
struct Live {
    scope: Call,
    asked: Option<Asked>,
    future: Option<Future>,
    body: Option<Out>,
    slots: Vec<Slot>,
}

/// What the model knows of a call.
#[derive(Clone, Debug, Default)]
struct Obvious {
    estimate: u64,
    /// Further attempts that were granted.
    granted: u64,
    /// What the reader of the stream knows, and what the pieces will tell.
    stream: Option<(Option<u64>, Vec<u64>)>,
    /// Attempts that are open, with what they said.
    open: Vec<Option<u64>>,
    closed: Vec<Option<u64>>,
    /// Whether the call is over, and whether it was never sent.
    over: Option<bool>,
    /// What it counted for, once it was over and no attempt open.
    settled: Option<u64>,
    guessed: u64,
    /// It used more than was reserved for it.
    unforeseen: bool,
}

impl Obvious {
    fn settle(&mut self) {
        if self.over.is_some() {
            // Its body is gone, and the reader with it.
            self.closed.extend(self.stream.take().map(|(said, _)| said));
        }
        let Some(unsent) = self.over.filter(|_| self.open.is_empty() && self.settled.is_none()) else {
            return;
        };
        let said: u64 = self.closed.iter().flatten().sum();
        let silent = self.closed.iter().filter(|said| said.is_none()).count() as u64;
        let nobody = self.closed.iter().all(Option::is_none);
        let silent = if self.closed.is_empty() { 1 } else { silent };
        let silent = if nobody && unsent { silent - 1 } else { silent };
        self.guessed = silent * self.estimate;
        self.settled = Some(said + self.guessed);
        self.unforeseen = said + self.guessed > self.estimate * (1 + self.granted);
    }

    fn late(&mut self, used: u64) {
        if let Some(settled) = &mut self.settled {
            let known = used.min(self.guessed);
            self.guessed -= known;
            *settled += used - known;
            // Nothing was reserved for it any more.
            self.unforeseen |= used > known;
        }
    }

    fn reserved(&self) -> u64 {
        if self.settled.is_some() { 0 } else { self.estimate * (1 + self.granted) }
    }
}

struct Run {
    service: Budgeted<Model, budget_layer::OneForAll, ByHeader>,
    model: Model,
    live: Vec<Live>,
    obvious: Vec<Obvious>,
    limit: u64,
    denied: u64,
}

/// The estimate stands in the request.
#[derive(Clone)]
struct ByHeader;

impl budget_layer::Estimator<Request> for ByHeader {
    fn estimate(&self, request: &Request) -> budget_layer::Estimate {
        budget_layer::Estimate::whole(request.headers()["x-estimate"].to_str().unwrap().parse().unwrap())
    }
}

impl Run {
    fn new() -> Self {
        let layer = BudgetLayer::builder().tokens(LIMIT).estimator(ByHeader).build().unwrap();
        let model = Model::new();
        let service = layer.layer(model.clone());
        Self { service, model, live: Vec::new(), obvious: Vec::new(), limit: LIMIT, denied: 0 }
    }

    fn spent(&self) -> u64 {
        self.obvious.iter().filter_map(|call| call.settled).sum()
    }

    fn reserved(&self) -> u64 {
        self.obvious.iter().map(Obvious::reserved).sum()
    }

    fn start(&mut self, estimate: u64) {
        let mut request = request();
        request.headers_mut().insert("x-estimate", estimate.into());
        let mut future: Future = spawn(Box::pin(self.service.clone().oneshot(request)));
        let fits = self.spent() + self.reserved() + estimate <= self.limit;
        assert_eq!(future.poll().is_pending(), fits);
        if !fits {
            self.denied += 1;
            return;
        }
        let asked = self.model.next();
        let scope = asked.call.clone().unwrap();
        self.live.push(Live {
            scope,
            asked: Some(asked),
            future: Some(future),
            body: None,
            slots: Vec::new(),
        });
        self.obvious.push(Obvious { estimate, ..Obvious::default() });
    }

    fn on(&mut self, at: usize, op: Op) {
        // The youngest calls are the ones of interest.
        let Some(at) = self.live.len().checked_sub(at + 1) else { return };
        let left = self.limit.saturating_sub(self.spent() + self.reserved());
        let (live, obvious) = (&mut self.live[at], &mut self.obvious[at]);
        match op {
            Op::Attempt(_) if obvious.settled.is_none() => {
                live.slots.push(live.scope.enter(Call::slot).unwrap());
                obvious.open.push(None);
            }
            Op::Say(_, used) => {
                if let (Some(slot), Some(said)) = (live.slots.last_mut(), obvious.open.last_mut()) {
                    slot.set(&usage(0, used));
                    *said = Some(used);
                }
            }
            Op::EndAttempt(_) => {
                drop(live.slots.pop());
                obvious.closed.extend(obvious.open.pop());
            }
            Op::Again(_) => {
                let granted = live.scope.enter(Call::take_attempt).is_ok();
                assert_eq!(granted, obvious.settled.is_none() && obvious.estimate <= left);
                obvious.granted += u64::from(granted);
            }
            Op::Back(_) if obvious.granted > 0 => {
                live.scope.enter(Call::give_attempt_back);
                obvious.granted -= u64::from(obvious.settled.is_none());
            }
            Op::Stream(_, told) => {
                if let (Some(asked), Some(mut future)) = (live.asked.take(), live.future.take()) {
                    let pieces = told.map(|told| Step::Told(usage(0, told)));
                    let slot = asked.slot();
                    asked.send(Ok(Answer::read(slot, pieces)));
                    live.body = Some(tokio_test::assert_ready_ok!(future.poll()));
                    obvious.stream = Some((None, told.into_iter().rev().collect()));
                }
            }
            Op::Piece(_) => {
                if let Some(body) = &mut live.body {
                    let is_over = tokio_test::block_on(body.body_mut().frame()).is_none();
                    if let Some((said, pieces)) = &mut obvious.stream {
                        *said = pieces.pop().or(*said);
                    }
                    if is_over {
                        live.body = None;
                        obvious.over = Some(false);
                    }
                }
            }
            Op::Answer(_) => {
                if let (Some(asked), Some(mut future)) = (live.asked.take(), live.future.take()) {
                    asked.send(Ok(Answer::unread([Step::Text, Step::Text])));
                    live.body = Some(tokio_test::assert_ready_ok!(future.poll()));
                }
            }
            Op::Fail(_, sent) => {
                if let (Some(asked), Some(mut future)) = (live.asked.take(), live.future.take()) {
                    asked.send(Err(if sent { reset() } else { refused() }));
                    assert!(tokio_test::assert_ready!(future.poll()).is_err());
                    obvious.over = Some(!sent);
                }
            }
            Op::Read(_) => {
                if let Some(body) = live.body.take() {
                    tokio_test::block_on(body.into_body().collect()).unwrap();
                    if let Some((said, pieces)) = &mut obvious.stream {
                        *said = pieces.first().copied().or(*said);
                    }
                    obvious.over = Some(false);
                }
            }
            Op::Drop(_) => {
                let dropped = (live.future.take(), live.body.take());
                if !matches!(dropped, (None, None)) {
                    drop(dropped);
                    obvious.over = Some(false);
                }
            }
            Op::Late(_, used) if obvious.settled.is_some() => {
                live.scope.enter(Call::slot).unwrap().set(&usage(0, used));
                obvious.late(used);
            }
            _ => {}
        }
        obvious.settle();
    }

    fn check(&self) {
        let budget = self.service.ledger().unkeyed();
        assert_eq!((budget.spent(), budget.reserved()), (self.spent(), self.reserved()));
        let spend = budget.spend();
        let settled = self.obvious.iter().filter(|call| call.settled.is_some()).count() as u64;
        assert_eq!((spend.calls(), spend.denied()), (settled, self.denied));
        assert_eq!(spend.outcomes().map(|(_, tally)| tally.spent).sum::<u64>(), self.spent());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_reservation_settles_once_and_nothing_is_overspent_while_no_call_passes_its_estimate(
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut run = Run::new();
        let mut highest = LIMIT;
        for op in ops {
            match op {
                Op::Start(estimate) => run.start(estimate),
                Op::SetLimit(limit) => {
                    run.limit = limit;
                    highest = highest.max(limit);
                    run.service.ledger().unkeyed().set_limit(limit);
                }
                Op::Attempt(at) | Op::Say(at, _) | Op::EndAttempt(at) | Op::Again(at) | Op::Back(at) | Op::Answer(at)
                | Op::Stream(at, _) | Op::Piece(at) | Op::Fail(at, _) | Op::Read(at) | Op::Drop(at)
                | Op::Late(at, _) => run.on(at, op),
            }
            run.check();
            if !run.obvious.iter().any(|call| call.unforeseen) {
                let budget = run.service.ledger().unkeyed();
                prop_assert!(budget.spent() + budget.reserved() <= highest);
            }
        }
        // Whatever is still there is dropped, in an order of its own.
        let budget = run.service.ledger().unkeyed().clone();
        let calls = run.live.len() as u64;
        for live in run.live {
            drop(live);
        }
        prop_assert_eq!((budget.reserved(), budget.spend().calls()), (0, calls));
    }
}
