//! A window of tokens or calls that is tightened by what the server says it has left.

use std::{pin::Pin, time::Duration};

use crate::common::{Answer, Asked, Charged, Model, Step, is_denied, request, usage};
use budget_layer::{Allowance, Budget, BudgetLayer, Denial, Reason, Window};
use failsoft_core::{BoxError, Degraded, StandIn};
use http_body_util::BodyExt as _;
use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready, task::Spawn, task::spawn};
use tower::{Layer as _, ServiceExt as _};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const EACH: u64 = 100;
const LIMIT: u64 = 10 * EACH;

type Pending = Spawn<Pin<Box<dyn Future<Output = Result<Charged, BoxError>> + Send>>>;

/// A model, and a budget of tokens for each minute in which its calls cost 100 each.
struct Tpm {
    service: budget_layer::Budgeted<Model, budget_layer::OneForAll, budget_layer::Fixed>,
    model: Model,
    budget: Budget,
}

fn tpm(wait: Option<Duration>) -> Tpm {
    let builder = BudgetLayer::builder()
        .tokens(LIMIT)
        .within(Window::sliding(MINUTE))
        .heed_quota_headers()
        .estimate_fixed(EACH);
    let builder = match wait {
        Some(wait) => builder.wait(wait),
        None => builder,
    };
    let (layer, model) = (builder.build().unwrap(), Model::new());
    let budget = layer.budget().clone();
    Tpm { service: layer.layer(model.clone()), model, budget }
}

type Lines<'a> = &'a [(&'static str, &'static str)];

impl Tpm {
    fn call(&self) -> Pending {
        let mut call: Pending = spawn(Box::pin(self.service.clone().oneshot(request())));
        assert_pending!(call.poll());
        call
    }

    fn begin(&self) -> Open {
        let call = self.call();
        Open { call, asked: self.model.next() }
    }

    async fn called(&self, lines: Lines<'_>) {
        self.begin().answered(lines).await;
    }

    fn waits(&self) -> Pending {
        let call = self.call();
        assert_eq!(self.model.waiting(), 0, "it waits");
        call
    }

    fn denied(&self) -> Denial {
        let mut call: Pending = spawn(Box::pin(self.service.clone().oneshot(request())));
        let error = assert_ready!(call.poll()).unwrap_err();
        assert!(is_denied(&error));
        Denial::find(&*error).unwrap().clone()
    }
}

/// A call under way.
struct Open {
    call: Pending,
    asked: Asked,
}

impl Open {
    /// It has used what was estimated.
    async fn answered(self, lines: Lines<'_>) {
        let Self { mut call, asked } = self;
        let mut answer = Answer::read(asked.slot(), [Step::Told(usage(0, EACH))]);
        for (name, value) in lines {
            answer.headers_mut().insert(*name, http::HeaderValue::from_static(value));
        }
        asked.send(Ok(answer));
        let response = assert_ready!(call.poll()).unwrap();
        response.into_body().collect().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_server_has_left_tightens_the_window_until_its_reset() {
    let tpm = tpm(None);
    tpm.called(&[("x-ratelimit-remaining-tokens", "250"), ("x-ratelimit-reset-tokens", "20s")]).await;
    assert_eq!((tpm.budget.remaining(), tpm.budget.server_left()), (900, Some(250)));
    tpm.called(&[]).await;
    tpm.called(&[]).await;
    let denial = tpm.denied();
    assert_eq!(
        (denial.reason(), denial.needed(), denial.left(), denial.renews_in()),
        (Reason::UsedUp, 100, 50, Some(20 * SECOND))
    );
    advance(20 * SECOND).await;
    assert_eq!(tpm.budget.server_left(), None);
    // Its own limit holds as ever: seven more.
    for _ in 0..7 {
        tpm.called(&[]).await;
    }
    assert_eq!(tpm.denied().left(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_window_is_never_loosened() {
    let tpm = tpm(None);
    for _ in 0..10 {
        tpm.called(&[("x-ratelimit-remaining-tokens", "1e18"), ("x-ratelimit-reset-tokens", "1s")]).await;
    }
    assert_eq!((tpm.denied().left(), tpm.budget.limit()), (0, LIMIT));
}

#[tokio::test(start_paused = true)]
async fn calls_that_the_server_had_not_seen_yet_are_subtracted() {
    let tpm = tpm(None);
    let first = tpm.begin();
    // They began while the first was under way.
    let others = [tpm.begin(), tpm.begin()];
    first.answered(&[("x-ratelimit-remaining-tokens", "250")]).await;
    assert_eq!(tpm.budget.server_left(), Some(50));
    tpm.denied();
    // Whoever began later knows better, whether more or less is left.
    let [second, third] = others;
    second.answered(&[("x-ratelimit-remaining-tokens", "400")]).await;
    assert_eq!(tpm.budget.server_left(), Some(300));
    third.answered(&[("x-ratelimit-remaining-tokens", "120")]).await;
    assert_eq!(tpm.budget.server_left(), Some(120));
}

#[tokio::test(start_paused = true)]
async fn callers_wait_for_the_servers_reset_in_their_order_and_are_woken_when_it_has_more_sooner() {
    let tpm = tpm(Some(MINUTE));
    let under_way = tpm.begin();
    tpm.called(&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "30")]).await;
    let (mut first, mut second) = (tpm.waits(), tpm.waits());
    assert_eq!(tpm.budget.waiting(), 2);
    advance(10 * SECOND).await;
    assert_pending!(first.poll());
    // An answer to a call that began before says less, which changes nothing.
    under_way.answered(&[("x-ratelimit-remaining-tokens", "100")]).await;
    assert_pending!(first.poll());
    assert_eq!(tpm.model.waiting(), 0);
    advance(20 * SECOND).await;
    assert!(first.is_woken());
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    assert_eq!((tpm.model.waiting(), tpm.budget.waiting()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn who_waits_goes_on_at_once_when_a_later_answer_says_that_there_is_more() {
    let tpm = tpm(Some(MINUTE));
    let (first, later) = (tpm.begin(), tpm.begin());
    first.answered(&[("x-ratelimit-remaining-tokens", "100"), ("x-ratelimit-reset-tokens", "50")]).await;
    let mut waits = tpm.waits();
    later.answered(&[("x-ratelimit-remaining-tokens", "300"), ("x-ratelimit-reset-tokens", "50")]).await;
    assert!(waits.is_woken());
    assert_pending!(waits.poll());
    assert_eq!((tpm.model.waiting(), tpm.budget.server_left()), (1, Some(200)));
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_less_time_than_the_reset_is_denied_at_once() {
    let tpm = tpm(Some(10 * SECOND));
    tpm.called(&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "30")]).await;
    assert_eq!(tpm.denied().renews_in(), Some(30 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn nothing_that_a_server_says_shuts_a_window_for_longer_than_it_is_long() {
    for reset in ["1e300", "99999999999999", "2999-01-01T00:00:00Z", "900h"] {
        let tpm = tpm(None);
        tpm.called(&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", reset)]).await;
        assert_eq!(tpm.denied().renews_in(), Some(MINUTE), "{reset}");
        advance(MINUTE).await;
        tpm.called(&[]).await;
    }
    for (left, reset) in
        [("-1", "30"), ("NaN", "30"), ("", "30"), ("many", "30"), ("0", "-1"), ("0", "NaN"), ("0", "0")]
    {
        let tpm = tpm(None);
        tpm.called(&[("x-ratelimit-remaining-tokens", left), ("x-ratelimit-reset-tokens", reset)]).await;
        assert_eq!(tpm.budget.server_left(), None, "{left} {reset}");
        tpm.called(&[]).await;
    }
    // One that names no reset is heeded for as long as the window is.
    let tpm = tpm(None);
    tpm.called(&[("x-ratelimit-remaining-tokens", "99")]).await;
    assert_eq!(tpm.denied().renews_in(), Some(MINUTE));
}

#[tokio::test(start_paused = true)]
async fn a_failure_tells_what_is_left_too_and_what_stands_in_for_an_answer_does_not() {
    let tpm = tpm(None);
    let Open { mut call, asked } = tpm.begin();
    let mut refused = Answer::unread([]);
    *refused.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
    refused.headers_mut().insert("anthropic-ratelimit-tokens-remaining", http::HeaderValue::from_static("0"));
    asked.send(Ok(refused));
    let _ = assert_ready!(call.poll()).unwrap();
    assert_eq!(tpm.denied().left(), 0);

    let tpm = self::tpm(None);
    let Open { mut call, asked } = tpm.begin();
    let mut cached = Answer::unread([Step::Text]);
    cached.headers_mut().insert("x-ratelimit-remaining-tokens", http::HeaderValue::from_static("0"));
    cached.extensions_mut().insert(Degraded::by(StandIn::LastGood));
    asked.send(Ok(cached));
    assert_ready!(call.poll()).unwrap().into_body().collect().await.unwrap();
    assert_eq!(tpm.budget.server_left(), None);
}

#[tokio::test(start_paused = true)]
async fn calls_and_tokens_each_heed_their_own_limit_and_others_none() {
    let minute = || Window::sliding(MINUTE);
    let layer = BudgetLayer::builder()
        .tokens(50_000)
        .also(Allowance::tokens(LIMIT).named("tpm").within(minute()).heed_quota_headers())
        .also(Allowance::calls(60).named("rpm").within(minute()).heed_quota_headers())
        .also(Allowance::calls(90).named("mine").within(minute()))
        .estimate_fixed(EACH)
        .build()
        .unwrap();
    let (model, left) =
        (Model::new(), || layer.ledgers().iter().map(|ledger| ledger.unkeyed().server_left()));
    let mut call = spawn(Box::pin(layer.layer(model.clone()).oneshot(request())));
    assert_pending!(call.poll());
    let mut answer = Answer::unread([Step::Text]);
    for (name, value) in [("x-ratelimit-remaining-tokens", "400"), ("x-ratelimit-remaining-requests", "4")] {
        answer.headers_mut().insert(name, http::HeaderValue::from_static(value));
    }
    model.next().send(Ok(answer));
    let _ = assert_ready!(call.poll()).unwrap();
    assert_eq!(left().collect::<Vec<_>>(), [None, Some(400), Some(4), None]);
}

#[test]
fn headers_are_heeded_over_sliding_windows_of_tokens_or_calls_only() {
    let err = BudgetLayer::builder().heed_quota_headers().build().unwrap_err();
    assert_eq!((err.field(), err.to_string().contains("sliding")), ("heed_quota_headers", true));
    let money = Allowance::money(1).within(Window::sliding(MINUTE)).heed_quota_headers();
    let err = BudgetLayer::builder().also(money).build().unwrap_err();
    assert_eq!((err.field(), err.to_string().contains("tokens or calls")), ("heed_quota_headers", true));
}
