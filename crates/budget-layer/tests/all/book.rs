//! What was spent on what: each attempt under its own outcome, and nothing twice.

use crate::common::{Answer, Asked, Model, Request, Step, of_session, refused, session, usage};
use budget_layer::{
    Allowance, Amounts, Book, BudgetLayer, Estimate, Estimator, Filter, GroupBy, Labels, Ledger, Outcome,
    Price, book::Part,
};
use failsoft_core::{BoxError, Call, Class, Slot, Usage};
use http_body_util::BodyExt as _;
use tokio_test::{assert_pending, assert_ready, task::Spawn, task::spawn};
use tower::{Layer as _, ServiceExt as _};

/// 10 for the prompt, 100 for the answer.
#[derive(Clone)]
struct Parts;

impl Estimator<Request> for Parts {
    fn estimate(&self, _: &Request) -> Estimate {
        Estimate::parts(10, 100)
    }
}

/// 1 and 5 millionths a token.
const PRICE: Price = Price::new(1_000_000, 5_000_000);

/// By the path: `/model/tool`.
fn labels(request: &Request) -> Labels {
    let mut parts = request.uri().path().split('/').skip(1);
    let (model, tool) = (parts.next().unwrap_or_default(), parts.next());
    let labels = Labels::new().model(model).route("somewhere");
    match tool {
        Some(tool) => labels.tool(tool),
        None => labels,
    }
}

fn of(id: &str, path: &str) -> Request {
    let mut request = of_session(id);
    *request.uri_mut() = path.parse().unwrap();
    request
}

type Pending =
    Spawn<std::pin::Pin<Box<dyn Future<Output = Result<crate::common::Charged, BoxError>> + Send>>>;

/// A call in flight.
struct One {
    book: Book,
    /// What the budgets of tokens and of money were charged.
    ledgers: [Ledger; 2],
    /// Nobody else writes into the book.
    is_alone: bool,
    asked: Asked,
    future: Pending,
}

fn one_in(book: &Book) -> One {
    let layer = BudgetLayer::builder()
        .tokens(10_000)
        .key_fn(session)
        .also(Allowance::money(1_000_000))
        .price(PRICE)
        .book(book.clone(), labels)
        .estimator(Parts)
        .build()
        .unwrap();
    let [tokens, money] = layer.ledgers() else { panic!("two") };
    let (ledgers, model) = ([tokens.clone(), money.clone()], Model::new());
    let mut future: Pending = spawn(Box::pin(layer.layer(model.clone()).oneshot(of("7", "/large/search"))));
    assert_pending!(future.poll());
    One { book: book.clone(), ledgers, is_alone: book.is_empty(), asked: model.next(), future }
}

fn one() -> One {
    one_in(&Book::new())
}

impl One {
    fn attempt(&self, route: &str, class: Option<Class>, output: u64) {
        let mut slot = self.asked.slot();
        slot.on(Some(route.into()));
        slot.set(&usage(9, output));
        if let Some(class) = class {
            slot.ended(class);
        }
    }

    /// Ends well.
    fn answer(mut self, route: Option<&str>, output: u64) -> (Book, [Ledger; 2]) {
        let mut slot = self.asked.slot();
        slot.on(route.map(Into::into));
        slot.ended(Class::Success);
        self.asked.send(Ok(Answer::read(slot, [Step::Told(usage(9, output))])));
        let response = assert_ready!(self.future.poll()).unwrap();
        assert_ready!(spawn(response.into_body().collect()).poll()).unwrap();
        if self.is_alone {
            check(&self.book, &self.ledgers);
        }
        (self.book, self.ledgers)
    }
}

/// The book says what the budgets were charged.
#[track_caller]
fn check(book: &Book, [tokens, money]: &[Ledger; 2]) {
    let sum = book.sum(&Filter::all());
    assert_eq!(
        (sum.tokens, sum.money, sum.calls),
        (tokens.total().spent(), money.total().spent(), tokens.total().calls())
    );
}

/// The rows, in short: route, outcome, part, attempts, tokens, money.
fn rows(book: &Book) -> Vec<(String, Outcome, Part, u64, u64, u64)> {
    let rows = book.rows(&Filter::all()).into_iter();
    rows.map(|row| {
        let Amounts { attempts, tokens, money, .. } = row.amounts;
        (
            row.labels.route.map_or_else(String::new, |route| route.to_string()),
            row.outcome,
            row.part,
            attempts,
            tokens,
            money,
        )
    })
    .collect()
}

fn row(
    route: &str,
    outcome: Outcome,
    part: Part,
    attempts: u64,
    tokens: u64,
    money: u64,
) -> (String, Outcome, Part, u64, u64, u64) {
    (route.to_owned(), outcome, part, attempts, tokens, money)
}

#[tokio::test]
async fn a_call_stands_under_its_session_its_tool_its_model_its_route_and_its_outcome() {
    let (book, _) = one().answer(Some("a"), 20);
    let rows = book.rows(&Filter::all());
    assert_eq!(rows.len(), 1);
    let expected = Labels::new().session("7").tool("search").model("large").route("a");
    assert_eq!((&rows[0].labels, rows[0].outcome, rows[0].part), (&expected, Outcome::Success, Part::Last));
    let Amounts { calls, attempts, input, output, tokens, estimated, money, .. } = rows[0].amounts;
    assert_eq!((calls, attempts, input, output, tokens, estimated, money), (1, 1, 9, 20, 29, 0, 109));
}

// G98, G99: what failed attempts used was spent on nobody; the loser of a hedge was billed in full, to nobody.
#[tokio::test]
async fn failed_attempts_and_the_losers_of_hedges_stand_on_their_own_routes_under_their_own_outcomes() {
    let one = one();
    one.attempt("a", Some(Class::Overloaded), 0);
    one.attempt("b", Some(Class::RateLimited), 1);
    one.attempt("c", None, 3);
    let (book, _) = one.answer(Some("d"), 20);
    assert_eq!(
        rows(&book),
        [
            row("a", Outcome::Overloaded, Part::Failed, 1, 9, 9),
            row("b", Outcome::RateLimited, Part::Failed, 1, 10, 14),
            row("c", Outcome::Cancelled, Part::Overtaken, 1, 12, 24),
            row("d", Outcome::Success, Part::Last, 1, 29, 109),
        ]
    );
}

#[tokio::test]
async fn a_cancelled_call_stands_as_cancelled_with_the_estimate_for_what_was_not_seen() {
    let One { book, ledgers, asked, future, .. } = one();
    let mut slot = asked.slot();
    slot.on(Some("a".into()));
    slot.set(&Usage { output: Some(30), ..Usage::default() });
    drop((future, slot));
    check(&book, &ledgers);
    assert_eq!(rows(&book), [row("a", Outcome::Cancelled, Part::Last, 1, 40, 160)]);
    assert_eq!(book.sum(&Filter::all()).estimated, 10);
}

#[tokio::test]
async fn a_silent_attempt_counts_with_its_estimate_and_one_without_a_reader_on_the_route_that_was_said() {
    let one = one();
    drop(one.asked.slot());
    let (book, _) = one.answer(None, 20);
    let of_part = |part| {
        let sum = book.sum(&Filter::all().route("somewhere").part(part));
        (sum.tokens, sum.estimated, sum.money)
    };
    assert_eq!((of_part(Part::Last), of_part(Part::Overtaken)), ((29, 0, 109), (110, 110, 510)));

    let One { book, ledgers, asked, mut future, .. } = self::one();
    asked.send(Ok(Answer::unread([Step::Text])));
    let response = assert_ready!(future.poll()).unwrap();
    response.into_body().collect().await.unwrap();
    check(&book, &ledgers);
    assert_eq!(rows(&book), [row("somewhere", Outcome::Success, Part::Last, 1, 110, 510)]);
}

#[tokio::test]
async fn what_is_turned_down_stands_there_with_nothing_spent() {
    let One { book, ledgers, asked, mut future, .. } = one();
    asked.send(Err(refused()));
    assert!(assert_ready!(future.poll()).is_err());
    check(&book, &ledgers);
    assert_eq!(rows(&book), [row("somewhere", Outcome::Transient, Part::Last, 1, 0, 0)]);
}

#[tokio::test]
async fn late_usage_stands_apart_less_what_was_estimated_in_its_place() {
    let late = |scope: &Call, route: &str, usage: Usage| {
        let mut slot: Slot = scope.enter(Call::slot).unwrap();
        slot.on(Some(route.into()));
        slot.set(&usage);
    };
    let one = one();
    let scope = one.asked.call.clone().unwrap();
    let (book, ledgers) = one.answer(Some("a"), 20);
    late(&scope, "b", usage(1, 2));
    check(&book, &ledgers);
    assert_eq!(rows(&book)[1], row("b", Outcome::Success, Part::Late, 0, 3, 11));

    // Dropped without a word, and its estimate stands: what comes then was estimated already.
    let One { book, ledgers, asked, future, .. } = self::one();
    let scope = asked.call.clone().unwrap();
    drop((future, asked));
    late(&scope, "b", usage(10, 90));
    check(&book, &ledgers);
    late(&scope, "b", usage(0, 30));
    check(&book, &ledgers);
    assert_eq!(rows(&book)[0], row("b", Outcome::Cancelled, Part::Late, 0, 20, 100));
}

#[tokio::test]
async fn without_a_budget_of_tokens_the_book_counts_them_all_the_same() {
    let (book, model) = (Book::new(), Model::new());
    let builder = BudgetLayer::builder().calls(10).book(book.clone(), |_: &Request| Labels::new());
    let layer = builder.price(PRICE).estimator(Parts).build().unwrap();
    let mut call = spawn(layer.layer(model.clone()).oneshot(of("7", "/")));
    assert_pending!(call.poll());
    let asked = model.next();
    let scope = asked.call.clone().unwrap();
    drop((call, asked));
    scope.enter(Call::slot).unwrap().set(&usage(10, 90));
    let sum = book.sum(&Filter::all());
    assert_eq!((sum.tokens, sum.money, sum.estimated), (110, 510, 110));
}

#[tokio::test]
async fn sums_are_filtered_and_grouped_and_two_layers_write_in_one_book() {
    let book = Book::new();
    for output in [10, 20] {
        let one = one_in(&book);
        one.attempt("a", Some(Class::Overloaded), 0);
        let _ = one.answer(Some("b"), output);
    }
    let tool = BudgetLayer::builder()
        .calls(9)
        .key_fn(|id: &&'static str| *id)
        .book(book.clone(), |_: &&'static str| Labels::new().tool("fetch").session("8"))
        .estimate_fixed(5)
        .classify(failsoft_core::ErrorsOnly)
        .build()
        .unwrap();
    let tool = tool.layer(tower::service_fn(|_: &'static str| async { Ok::<_, BoxError>(()) }));
    tool.oneshot("7").await.unwrap();

    let sum = |filter: Filter| book.sum(&filter).tokens;
    assert_eq!(sum(Filter::all()), 2 * 9 + 19 + 29 + 5);
    assert_eq!((sum(Filter::all().session("7")), sum(Filter::all().session("8"))), (66, 5));
    assert_eq!(
        (sum(Filter::all().route("a")), sum(Filter::all().outcome(Outcome::Success).tool("search"))),
        (18, 48)
    );
    assert_eq!((sum(Filter::all().model("large")), sum(Filter::all().model("other"))), (66, 0));
    let by =
        |by, column: &str| book.sum_by(by, &Filter::all()).get(&Some(column.into())).map(|sum| sum.tokens);
    assert_eq!((by(GroupBy::Tool, "search"), by(GroupBy::Tool, "fetch")), (Some(66), Some(5)));
    assert_eq!((by(GroupBy::Outcome, "overloaded"), by(GroupBy::Part, "failed")), (Some(18), Some(18)));
    assert_eq!(
        (by(GroupBy::Session, "8"), by(GroupBy::Route, "b"), by(GroupBy::Model, "x")),
        (Some(5), Some(48), None)
    );
    assert_eq!(book.sum_by(GroupBy::Model, &Filter::all())[&None].calls, 1, "of a tool no model is known");

    // A session that is over is written elsewhere, and read back.
    let taken = book.take(&Filter::all().session("7"));
    assert_eq!((taken.len(), sum(Filter::all())), (2, 5));
    taken.iter().for_each(|row| book.add(row));
    assert_eq!(sum(Filter::all()), 71);
}

#[tokio::test]
async fn a_book_is_bounded_and_nothing_is_left_out_of_its_sums() {
    let (book, model) = (Book::with_rows(3), Model::new());
    let builder = BudgetLayer::builder()
        .tokens(1_000_000)
        .book(book.clone(), |request: &Request| labels(request).session(session(request)));
    let layer = builder.estimate_fixed(10).build().unwrap();
    let service = layer.layer(model.clone());
    for id in 0..1_000 {
        let mut call = spawn(service.clone().oneshot(of(&id.to_string(), &format!("/m{}", id % 100))));
        assert_pending!(call.poll());
        drop((call, model.next()));
    }
    assert_eq!(book.len(), 4);
    assert_eq!(book.sum(&Filter::all()).tokens, layer.budget().spent());
    assert_eq!(book.sum(&Filter::all().session("(other)")).calls, 997);
}

#[cfg(feature = "serde")]
#[tokio::test]
async fn rows_can_be_written_and_read() {
    let one = one();
    one.attempt("a", Some(Class::Overloaded), 0);
    let (book, _) = one.answer(Some("b"), 20);
    let rows = book.rows(&Filter::all());
    let text = serde_json::to_string(&rows).unwrap();
    assert!(text.contains(r#""outcome":"overloaded","part":"failed""#), "{text}");
    let read: Vec<budget_layer::Row> = serde_json::from_str(&text).unwrap();
    assert_eq!(read, rows);
    let other = Book::new();
    read.iter().for_each(|row| other.add(row));
    assert_eq!(other.rows(&Filter::all()), rows);
}
