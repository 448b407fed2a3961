use std::collections::HashSet;

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_oneof, proptest};

use super::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn nominal(backoff: &Backoff, attempts: u32) -> Vec<Duration> {
    (1..=attempts).map(|attempt| backoff.nominal(attempt)).collect()
}

fn draws(backoff: &Backoff, attempt: u32, count: usize) -> Vec<Duration> {
    let rng = Rng::seeded(11);
    (0..count).map(|_| backoff.delay(attempt, Duration::ZERO, &rng)).collect()
}

#[test]
fn the_shapes_grow_as_they_say() {
    let exponential = Backoff::exponential(ms(500)).factor(1.5);
    let wanted = [500_000, 750_000, 1_125_000, 1_687_500, 2_531_250].map(Duration::from_micros);
    assert_eq!(nominal(&exponential, 5), wanted);
    assert_eq!(nominal(&Backoff::linear(ms(1_000), ms(500)), 3), [ms(1_000), ms(1_500), ms(2_000)]);
    assert_eq!(nominal(&Backoff::fixed(ms(300)), 2), [ms(300), ms(300)]);
    let custom = Backoff::custom(|attempt| ms(100) * attempt * attempt);
    assert_eq!(nominal(&custom, 3), [ms(100), ms(400), ms(900)]);
}

#[test]
fn the_default_is_capped_floored_and_jittered() {
    let backoff = Backoff::default();
    assert_eq!(nominal(&backoff, 7), [1, 2, 4, 8, 16, 32, 60].map(Duration::from_secs));
    let drawn = draws(&backoff, 1, 10_000);
    assert!(drawn.iter().all(|wait| (ms(100)..=ms(1_000)).contains(wait)));
    assert!(drawn.iter().min() < Some(&ms(110)) && drawn.iter().max() > Some(&ms(990)));
}

#[test]
fn the_floor_and_the_cap_follow_an_unusual_first_delay() {
    assert_eq!(Backoff::exponential(ms(25)).range(1, Duration::ZERO), (Duration::from_micros(2_500), ms(25)));
    assert_eq!(Backoff::fixed(Duration::from_secs(90)).nominal(1), Duration::from_secs(90));
    assert_eq!(Backoff::fixed(Duration::ZERO).nominal(1), Duration::ZERO);
}

#[test]
fn every_attempt_number_gives_a_wait_within_the_cap() {
    let shapes = [
        Backoff::exponential(ms(2_000)),
        Backoff::exponential(Duration::MAX).factor(f64::MAX),
        Backoff::linear(ms(1), Duration::MAX),
        Backoff::decorrelated(ms(50)),
        Backoff::custom(|_| Duration::MAX),
    ];
    for backoff in shapes.map(|shape| shape.max(Duration::from_secs(30))) {
        for attempt in [0, 1, 2, 3, 10, 64, 100, 1_000, 1_024, 1_025, i32::MAX as u32, u32::MAX] {
            let wait = backoff.delay(attempt, Duration::MAX, &Rng::seeded(attempt.into()));
            assert!(
                wait > Duration::ZERO && wait <= Duration::from_secs(30),
                "{backoff:?} {attempt} {wait:?}"
            );
        }
    }
}

#[test]
fn clients_stay_spread_at_the_cap() {
    for jitter in [Jitter::Full, Jitter::Equal, Jitter::Proportional(0.5), Jitter::Spread(ms(4_000))] {
        let backoff = Backoff::exponential(ms(1_000)).max(ms(10_000)).jitter(jitter);
        let drawn = draws(&backoff, 8, 10_000);
        let at_cap = drawn.iter().filter(|wait| **wait >= ms(10_000)).count();
        assert!(at_cap <= 100, "{jitter:?}: {at_cap}");
        assert!(drawn.iter().all(|wait| *wait <= ms(10_000)));
        assert!(drawn.iter().collect::<HashSet<_>>().len() > 9_000);
    }
}

#[test]
fn clients_stay_spread_at_the_floor() {
    let backoff = Backoff::fixed(ms(100)).min(ms(50)).jitter(Jitter::Spread(ms(200)));
    let drawn = draws(&backoff, 1, 10_000);
    assert!(drawn.iter().all(|wait| (ms(50)..=ms(300)).contains(wait)));
    assert!(drawn.iter().filter(|wait| **wait == ms(50)).count() <= 100);
}

#[test]
fn the_whole_range_is_used_evenly() {
    let backoff = Backoff::fixed(ms(1_000)).min(Duration::ZERO);
    let mut tenths = [0u32; 10];
    for wait in draws(&backoff, 1, 10_000) {
        tenths[(wait.as_millis() / 100).min(9) as usize] += 1;
    }
    assert!(tenths.iter().all(|count| (850..=1_150).contains(count)), "{tenths:?}");
}

#[test]
fn decorrelated_waits_follow_the_previous_one() {
    let backoff = Backoff::decorrelated(ms(100)).max(ms(5_000));
    let rng = Rng::seeded(3);
    let mut previous = Duration::ZERO;
    for attempt in 1..=100 {
        let wait = backoff.delay(attempt, previous, &rng);
        let longest = (previous.max(ms(100)) * 3).min(ms(5_000));
        assert!((ms(100)..=longest).contains(&wait), "{wait:?} after {previous:?}");
        previous = wait;
    }
}

#[test]
fn a_place_in_the_range_can_be_chosen() {
    let backoff = Backoff::fixed(ms(1_000)).jitter(Jitter::Proportional(0.25));
    for (place, wanted) in [(0.0, 750), (0.4, 950), (0.5, 1_000), (0.6, 1_050), (1.0, 1_250)] {
        assert!(backoff.delay_at(1, Duration::ZERO, place).abs_diff(ms(wanted)) < Duration::from_micros(1));
    }
    assert_eq!(backoff.delay_at(1, Duration::ZERO, f64::NAN), ms(750));
}

#[test]
fn a_seed_gives_the_same_waits_again_and_threads_never_the_same() {
    assert_eq!(draws(&Backoff::default(), 3, 50), draws(&Backoff::default(), 3, 50));
    let shared = Rng::seeded(1);
    let mut all: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..1_000).map(|_| shared.unit().to_bits()).collect::<Vec<_>>()))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 4_000);
}

#[test]
fn senseless_settings_are_named() {
    let second = ms(1_000);
    for (backoff, field) in [
        (Backoff::default().factor(f64::NAN), "factor"),
        (Backoff::default().factor(-2.0), "factor"),
        (Backoff::default().factor(0.5), "factor"),
        (Backoff::default().factor(f64::INFINITY), "factor"),
        (Backoff::fixed(second).factor(2.0), "factor"),
        (Backoff::default().jitter(Jitter::Proportional(f64::NAN)), "jitter"),
        (Backoff::default().jitter(Jitter::Proportional(-0.1)), "jitter"),
        (Backoff::default().jitter(Jitter::Proportional(1.5)), "jitter"),
        (Backoff::decorrelated(second).jitter(Jitter::Equal), "jitter"),
        (Backoff::default().min(second).max(ms(10)), "min"),
    ] {
        let error = backoff.check().unwrap_err().to_string();
        assert!(error.contains("Backoff") && error.contains(field), "{error}");
    }
    for backoff in
        [Backoff::default(), Backoff::fixed(Duration::ZERO), Backoff::default().max(Duration::ZERO)]
    {
        backoff.check().unwrap();
    }
}

fn any_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        (0u64..100_000).prop_map(Duration::from_micros),
        any::<u64>().prop_map(Duration::from_nanos),
    ]
}

fn any_jitter() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        Just(Jitter::Full),
        Just(Jitter::Equal),
        any::<f64>().prop_map(Jitter::Proportional),
        any_duration().prop_map(Jitter::Spread),
    ]
}

proptest! {
    // Unchecked settings too: whatever is set, a wait is between the floor and the cap, and nothing panics.
    #[test]
    fn no_setting_makes_it_panic_or_leave_its_range(
        a in any_duration(),
        b in any_duration(),
        shape in 0..5,
        factor in any::<f64>(),
        limits in (any_duration(), any_duration()),
        jitter in any_jitter(),
        attempt in any::<u32>(),
        previous in any_duration(),
        seed in any::<u64>(),
    ) {
        let backoff = match shape {
            0 => Backoff::exponential(a).factor(factor),
            1 => Backoff::fixed(a),
            2 => Backoff::linear(a, b),
            3 => Backoff::decorrelated(a),
            _ => Backoff::custom(move |_| a),
        };
        let (min, max) = limits;
        let backoff = backoff.min(min).max(max).jitter(jitter);
        let wait = backoff.delay(attempt, previous, &Rng::seeded(seed));
        prop_assert!(wait <= max && wait >= min.min(max));
        let (low, high) = backoff.range(attempt, previous);
        prop_assert!(low <= wait && wait <= high);
        let _ = (backoff.check(), format!("{backoff:?}"));
    }
}
