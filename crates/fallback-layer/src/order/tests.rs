use proptest::prelude::*;

use super::*;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn standing(order: Order, weights: &[u32]) -> Standing {
    Standing::new(order, false, true, weights).unwrap()
}

fn all(routes: usize) -> RouteSet {
    RouteSet::first(routes)
}

#[test]
fn nothing_is_remembered_where_the_order_needs_nothing() {
    assert!(Standing::new(Order::Fixed, false, false, &[1, 1]).is_none());
}

#[test]
fn weights_are_spread_evenly_and_one_of_zero_is_asked_when_no_other_is_left() {
    let (mut standing, now) = (standing(Order::Weighted, &[5, 1, 1, 0]), Instant::now());
    let picked: Vec<_> = (0..7).filter_map(|_| standing.pick(all(4), None, now)).collect();
    assert_eq!(picked, [0, 0, 1, 0, 2, 0, 0]);
    assert_eq!(standing.pick(RouteSet::new([3]), None, now), Some(3));
    assert_eq!(standing.pick(RouteSet::NONE, None, now), None);
}

#[test]
fn the_quickest_is_first_once_each_was_asked_and_failures_make_a_quick_one_slow() {
    let (mut standing, now) = (standing(Order::LeastLatency, &[1, 1, 1]), Instant::now());
    // Each is asked once to find out, also while the others are still running.
    let explored: Vec<_> = (0..3).filter_map(|_| standing.pick(all(3), None, now)).collect();
    assert_eq!(explored, [0, 1, 2]);
    for (route, took) in [(0, 300), (1, 100), (2, 200)] {
        standing.answered(route, None, millis(took), now);
    }
    assert_eq!(standing.pick(all(3), None, now), Some(1));
    // A failure that comes at once is not quick.
    standing.failed(1, None, now);
    assert_eq!(standing.pick(all(3), None, now), Some(2));
    // Time makes it good, as answers do.
    for _ in 0..2 {
        assert_eq!(standing.pick(all(3), None, now), Some(2));
    }
    assert_eq!(standing.pick(all(3), None, now + secs(20)), Some(1));
}

#[test]
fn answers_make_good_what_a_failure_cost() {
    let (mut standing, now) = (standing(Order::LeastLatency, &[1, 1]), Instant::now());
    for (route, took) in [(0, 100), (1, 150)] {
        standing.pick(all(2), None, now);
        standing.answered(route, None, millis(took), now);
    }
    standing.failed(0, None, now);
    assert_eq!(standing.pick(all(2), None, now), Some(1));
    standing.answered(0, None, millis(100), now);
    standing.answered(0, None, millis(100), now);
    assert_eq!(standing.pick(all(2), None, now), Some(0));
}

#[test]
fn a_route_that_never_answered_is_behind_the_others_and_tried_again_after_a_minute() {
    let (mut standing, now) = (standing(Order::LeastLatency, &[1, 1]), Instant::now());
    assert_eq!(standing.pick(all(2), None, now), Some(0));
    standing.failed(0, None, now);
    assert_eq!(standing.pick(all(2), None, now), Some(1));
    standing.answered(1, None, secs(9), now);
    assert_eq!(standing.pick(all(2), None, now + secs(59)), Some(1));
    assert_eq!(standing.pick(all(2), None, now + secs(60)), Some(0));
    // One call finds out, not all.
    assert_eq!(standing.pick(all(2), None, now + secs(60)), Some(1));
}

#[test]
fn a_key_stays_with_its_route_until_that_fails_or_may_not_be_asked() {
    let (mut standing, now) = (standing(Order::Fixed, &[1, 1, 1]), Instant::now());
    standing.answered(1, Some(7), millis(1), now);
    assert_eq!(standing.pick(all(3), Some(7), now), Some(1));
    assert_eq!(standing.pick(all(3), Some(8), now), Some(0));
    assert_eq!(standing.pick(all(3), None, now), Some(0));
    assert_eq!(standing.pick(RouteSet::new([0, 2]), Some(7), now), Some(0));
    // Another route's failure changes nothing, its own does.
    standing.failed(0, Some(7), now);
    assert_eq!(standing.pick(all(3), Some(7), now), Some(1));
    standing.failed(1, Some(7), now);
    assert_eq!(standing.pick(all(3), Some(7), now), Some(0));
}

#[test]
fn the_route_that_answered_last_is_first_until_it_fails() {
    let (mut standing, now) = (Standing::new(Order::Fixed, true, false, &[1, 1]).unwrap(), Instant::now());
    standing.failed(0, None, now);
    standing.answered(1, None, millis(1), now);
    assert_eq!(standing.pick(all(2), None, now), Some(1));
    standing.failed(0, None, now);
    assert_eq!(standing.pick(all(2), None, now), Some(1));
    standing.failed(1, None, now);
    assert_eq!(standing.pick(all(2), None, now), Some(0));
}

#[derive(Clone, Debug)]
enum Event {
    Pick(u64, u64),
    Answered(usize, u64, u64),
    Failed(usize, u64),
    Passes(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (any::<u64>(), 0..4_u64).prop_map(|(of, key)| Event::Pick(of, key)),
        (0..5_usize, 0..4_u64, any::<u64>()).prop_map(|(route, key, took)| Event::Answered(route, key, took)),
        (0..5_usize, 0..4_u64).prop_map(|(route, key)| Event::Failed(route, key)),
        (0..100_u64).prop_map(Event::Passes),
    ]
}

proptest! {
    /// Whatever happened, a pick is one of those that may be asked, and there is one when there is any; a key's
    /// route is what a map without bounds says.
    #[test]
    fn a_pick_is_always_one_of_those_asked_for_and_a_key_has_its_route(
        order in prop_oneof![Just(Order::Fixed), Just(Order::Weighted), Just(Order::LeastLatency)],
        weights in prop::collection::vec(prop_oneof![0..4_u32, Just(u32::MAX)], 1..5),
        events in prop::collection::vec(event(), 0..80),
    ) {
        let mut standing = standing(order, &weights);
        let mut now = Instant::now();
        let mut stays = std::collections::HashMap::new();
        for event in events {
            match event {
                Event::Pick(of, key) => {
                    let open = RouteSet::new((0..weights.len()).filter(|route| of >> route & 1 == 1));
                    let picked = standing.pick(open, Some(key), now);
                    prop_assert_eq!(picked.is_none(), open.is_empty());
                    prop_assert!(picked.is_none_or(|route| open.contains(route)));
                    if let Some(&route) = stays.get(&key).filter(|&&route| open.contains(route)) {
                        prop_assert_eq!(picked, Some(route));
                    }
                }
                Event::Answered(route, key, took) => {
                    standing.answered(route, Some(key), Duration::from_nanos(took), now);
                    stays.insert(key, route);
                }
                Event::Failed(route, key) => {
                    standing.failed(route, Some(key), now);
                    if stays.get(&key) == Some(&route) {
                        stays.remove(&key);
                    }
                }
                Event::Passes(seconds) => now += secs(seconds),
            }
        }
    }

    /// Over whole rounds each route has exactly its weight.
    #[test]
    fn shares_are_exact(weights in prop::collection::vec(0..20_u32, 1..6), rounds in 1..4_u32) {
        let total: u32 = weights.iter().sum();
        prop_assume!(total > 0);
        let (mut standing, now) = (standing(Order::Weighted, &weights), Instant::now());
        let mut counts = vec![0_u32; weights.len()];
        for _ in 0..total * rounds {
            if let Some(route) = standing.pick(all(weights.len()), None, now) {
                counts[route] += 1;
            }
        }
        let expected: Vec<_> = weights.iter().map(|weight| weight * rounds).collect();
        prop_assert_eq!(counts, expected);
    }
}
