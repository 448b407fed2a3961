//! Calls through a layer whose budgets have windows of the calendar, while a test turns the clock.

use std::{cell::Cell, future::ready, time::Duration};

use failsoft_core::{BoxError, Call, ErrorsOnly, Fault};
use tokio::{
    sync::oneshot,
    time::{Instant, advance},
};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

use super::Window;
use crate::{AllPass, Allowance, Budget, BudgetBuilder, BudgetLayer, Fixed, OneForAll, Outcome};

thread_local! {
    /// What the clock on the wall said when the test began, or turned it; from then on it goes as tokio's does.
    static TURNED: Cell<Option<(Instant, i64)>> = const { Cell::new(None) };
}

pub(super) fn wall() -> Option<i64> {
    let (since, wall) = TURNED.get()?;
    Some(wall + i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX))
}

#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
fn turn_to(time: &str) {
    let wall = time.parse::<jiff::Timestamp>().unwrap().as_millisecond();
    TURNED.set(Some((Instant::now(), wall)));
}

const fn hours(hours: u64) -> Duration {
    Duration::from_secs(3_600 * hours)
}

fn per(window: Window) -> BudgetBuilder<OneForAll, Fixed, AllPass, ErrorsOnly> {
    BudgetLayer::builder().tokens(100).estimate_fixed(40).classify(ErrorsOnly).within(window)
}

#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
fn berlin() -> Window {
    Window::day("Europe/Berlin").unwrap()
}

fn answered(_: ()) -> std::future::Ready<Result<(), BoxError>> {
    ready(Ok(()))
}

/// Calls until it is denied.
async fn admitted(service: &mut impl Service<(), Response = (), Error = BoxError>) -> u32 {
    let mut admitted = 0;
    while service.call(()).await.is_ok() {
        admitted += 1;
    }
    admitted
}

fn standing(budget: &Budget) -> (u64, u64) {
    (budget.spent(), budget.reserved())
}

#[tokio::test(start_paused = true)]
async fn a_day_in_its_own_zone_is_renewed_at_its_midnight_and_a_denial_says_when() {
    turn_to("2025-03-29T22:59:00Z");
    let layer = per(berlin()).build().unwrap();
    let mut service = layer.layer(service_fn(answered));
    for _ in 0..2 {
        service.ready().await.unwrap().call(()).await.unwrap();
    }
    let denied = service.ready().await.unwrap().call(()).await.unwrap_err();
    let fault = Fault::find(&*denied).unwrap();
    assert_eq!(fault.retry_after(), Some(Duration::from_secs(60)));
    advance(Duration::from_millis(59_999)).await;
    assert!(service.ready().await.unwrap().call(()).await.is_err());
    advance(Duration::from_millis(1)).await;
    service.ready().await.unwrap().call(()).await.unwrap();
    assert_eq!(standing(layer.budget()), (40, 0));
    // The night in which the clocks go forward.
    assert_eq!(layer.budget().renews_in(), Some(hours(23)));
    advance(hours(23)).await;
    assert_eq!(standing(layer.budget()), (0, 0));
    // All that was ever spent on what is known all the same.
    assert_eq!(layer.budget().spend().of(Outcome::Success).spent, 120);
}

#[tokio::test(start_paused = true)]
async fn a_call_over_midnight_counts_in_the_day_in_which_it_began() {
    turn_to("2025-06-01T21:59:00Z");
    let layer = per(berlin()).build().unwrap();
    let (answer, waits) = oneshot::channel::<()>();
    let mut service = layer.layer(service_fn(|waits: Option<oneshot::Receiver<()>>| async move {
        if let Some(waits) = waits {
            waits.await?;
        }
        Ok::<_, BoxError>(())
    }));
    let mut over_midnight = tokio_test::task::spawn(service.call(Some(waits)));
    assert!(over_midnight.poll().is_pending());
    assert_eq!(standing(layer.budget()), (0, 40));
    advance(Duration::from_secs(60)).await;
    assert_eq!(standing(layer.budget()), (0, 0), "yesterday's");
    for _ in 0..2 {
        service.call(None).await.unwrap();
    }
    answer.send(()).unwrap();
    over_midnight.await.unwrap();
    assert_eq!(standing(layer.budget()), (80, 0));
    assert_eq!(layer.budget().spend().spent(), 120);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_gives_nothing_back_and_a_day_that_is_left_out_is_over() {
    turn_to("2025-06-01T12:00:00Z");
    let layer = per(berlin()).build().unwrap();
    let mut service = layer.layer(service_fn(answered));
    service.call(()).await.unwrap();
    turn_to("2025-05-31T12:00:00Z");
    service.call(()).await.unwrap();
    assert!(service.call(()).await.is_err());
    turn_to("2025-06-09T12:00:00Z");
    assert_eq!(standing(layer.budget()), (0, 0));
    service.call(()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_years_ahead_and_is_set_right_holds_no_budget_up_until_then() {
    turn_to("2025-06-01T09:00:00Z");
    let layer = per(berlin()).build().unwrap();
    let mut service = layer.layer(service_fn(answered));
    service.call(()).await.unwrap();
    turn_to("2036-01-01T00:00:00Z");
    assert_eq!(admitted(&mut service).await, 2);
    turn_to("2025-06-01T10:00:00Z");
    assert_eq!(standing(layer.budget()), (120, 0), "all of what was spent today");
    let denied = service.call(()).await.unwrap_err();
    assert_eq!(Fault::find(&*denied).unwrap().retry_after(), Some(hours(12)));
    advance(hours(12)).await;
    assert_eq!(admitted(&mut service).await, 2);
    advance(hours(24)).await;
    assert_eq!(admitted(&mut service).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_midnight_if_it_has_the_time() {
    turn_to("2025-10-25T21:00:00Z");
    let layer = per(berlin()).wait(hours(2)).build().unwrap();
    let mut service = layer.layer(service_fn(answered));
    for _ in 0..2 {
        service.call(()).await.unwrap();
    }
    let began = Instant::now();
    service.call(()).await.unwrap();
    assert_eq!(began.elapsed(), hours(1));
    service.call(()).await.unwrap();
    // The night in which the clocks go back: too long to wait, and known to be.
    assert_eq!(layer.budget().renews_in(), Some(hours(25)));
    assert!(service.call(()).await.is_err());
    let short = Call::options().timeout(hours(1)).begin();
    assert!(short.scope(service.call(())).await.is_err());
    assert_eq!(began.elapsed(), hours(1));
}

#[tokio::test(start_paused = true)]
async fn a_month_a_day_and_a_lifetime_each_count_what_is_theirs() {
    turn_to("2025-01-31T12:00:00Z");
    let layer = per(berlin())
        .also(Allowance::tokens(200).within(Window::month("Europe/Berlin").unwrap()))
        .also(Allowance::tokens(240))
        .build()
        .unwrap();
    let mut service = layer.layer(service_fn(answered));
    let spent = || layer.ledgers().iter().map(|ledger| ledger.unkeyed().spent()).collect::<Vec<_>>();
    assert_eq!((admitted(&mut service).await, spent()), (2, vec![80, 80, 80]));
    turn_to("2025-02-01T12:00:00Z");
    assert_eq!(spent(), [0, 0, 80]);
    assert_eq!((admitted(&mut service).await, spent()), (2, vec![80, 80, 160]));
    turn_to("2025-02-02T12:00:00Z");
    assert_eq!(spent(), [0, 80, 160]);
    assert_eq!((admitted(&mut service).await, spent()), (2, vec![80, 160, 240]), "the lifetime is over");
    turn_to("2025-03-01T12:00:00Z");
    assert_eq!((admitted(&mut service).await, spent()), (0, vec![0, 0, 240]));
}
