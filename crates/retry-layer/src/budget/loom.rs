//! Run with `RUSTFLAGS="--cfg failsoft_loom" cargo test -p retry-layer --release loom`.

use loom::{model::Builder, sync::Arc, thread};

use super::{
    bucket::{Bucket, Cap, Rules, TOKEN},
    place::{Place, Places},
};

/// Two forced switches of threads find every race that two atomics can have; without a bound this runs for minutes.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound.get_or_insert(2);
    builder.check(check);
}

fn bucket(deposit: i64, initial: i64, cap: Cap, trickle: f64) -> Arc<Bucket> {
    Arc::new(Bucket::new(Rules { deposit, initial, cap, trickle }))
}

/// Each thread withdraws twice, at times of its own; how many were granted in all.
fn race(bucket: &Arc<Bucket>, times: [u64; 2]) -> i64 {
    let threads = times.map(|time| {
        let bucket = Arc::clone(bucket);
        thread::spawn(move || (0..2).filter(|_| bucket.withdraw(TOKEN, time)).count())
    });
    threads.into_iter().map(|thread| thread.join().unwrap() as i64).sum()
}

#[test]
fn loom_a_token_is_granted_once_and_none_is_lost() {
    model(|| {
        let bucket = bucket(0, 3 * TOKEN, Cap::Fixed(i64::MAX), 0.0);
        assert_eq!(race(&bucket, [0, 0]), 3);
        assert_eq!(bucket.balance(), 0);
    });
}

#[test]
fn loom_a_deposit_among_withdrawals_is_kept_wherever_it_is_counted() {
    for place in [Place::NONE, Place::FIRST] {
        model(move || {
            let bucket = bucket(TOKEN, TOKEN, Cap::Fixed(9 * TOKEN), 0.0);
            let depositor = {
                let bucket = Arc::clone(&bucket);
                thread::spawn(move || bucket.deposit(place))
            };
            let granted = (0..2).filter(|_| bucket.withdraw(TOKEN, 0)).count() as i64;
            depositor.join().unwrap();
            assert_eq!(granted * TOKEN + bucket.balance(), 2 * TOKEN);
        });
    }
}

#[test]
fn loom_a_cap_among_deposits_counts_none_twice() {
    model(|| {
        // Full: what is deposited before a withdrawal is cut off, what comes after it fits.
        let bucket = bucket(TOKEN, 2 * TOKEN, Cap::Fixed(2 * TOKEN), 0.0);
        let others = [Place::NONE, Place::FIRST].map(|place| {
            let bucket = Arc::clone(&bucket);
            thread::spawn(move || bucket.deposit(place))
        });
        let granted = (0..3).filter(|_| bucket.withdraw(TOKEN, 0)).count() as i64;
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!((2..=3).contains(&granted), "{granted}");
        let left = bucket.balance();
        assert!(left >= 0 && granted * TOKEN + left <= 4 * TOKEN, "{granted} {left}");
    });
}

#[test]
fn loom_what_is_deposited_before_is_always_seen() {
    model(|| {
        let bucket = bucket(TOKEN, 0, Cap::Fixed(9 * TOKEN), 0.0);
        let other = {
            let bucket = Arc::clone(&bucket);
            thread::spawn(move || {
                bucket.deposit(Place::NONE);
                bucket.withdraw(TOKEN, 0)
            })
        };
        bucket.deposit(Place::FIRST);
        assert!(bucket.withdraw(TOKEN, 0));
        assert!(other.join().unwrap());
        assert_eq!(bucket.balance(), 0);
    });
}

#[test]
fn loom_who_takes_over_a_place_goes_on_where_it_was_left() {
    model(|| {
        let (bucket, places) = (bucket(TOKEN, 0, Cap::Fixed(9 * TOKEN), 0.0), Arc::new(Places::new()));
        let threads = [(); 2].map(|()| {
            let (bucket, places) = (Arc::clone(&bucket), Arc::clone(&places));
            thread::spawn(move || {
                let place = places.take();
                bucket.deposit(place);
                places.give_back(place);
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(bucket.balance(), 2 * TOKEN);
    });
}

#[test]
fn loom_what_is_given_back_among_withdrawals_is_there_again_once() {
    model(|| {
        let bucket = bucket(0, 2 * TOKEN, Cap::Fixed(9 * TOKEN), 0.0);
        let other = {
            let bucket = Arc::clone(&bucket);
            thread::spawn(move || {
                if bucket.withdraw(TOKEN, 0) {
                    bucket.refund(TOKEN);
                }
            })
        };
        let granted = (0..2).filter(|_| bucket.withdraw(TOKEN, 0)).count() as i64;
        other.join().unwrap();
        assert_eq!(granted * TOKEN + bucket.balance(), 2 * TOKEN);
    });
}

#[test]
fn loom_an_interval_trickles_once_and_never_above_the_cap() {
    model(|| {
        // One token a second: at 1 s one has come, at 2 s two.
        let bucket = bucket(0, 0, Cap::Fixed(TOKEN), 1.0);
        let granted = race(&bucket, [1_000_000_000, 2_000_000_000]);
        assert!((1..=2).contains(&granted), "{granted}");
        assert!((0..=TOKEN).contains(&bucket.balance()));
        assert!(granted * TOKEN + bucket.balance() <= 2 * TOKEN);
    });
}

#[test]
fn loom_a_cap_that_moves_never_makes_tokens() {
    model(|| {
        let bucket = bucket(TOKEN, 2 * TOKEN, Cap::Recent { base: 2 * TOKEN, span: 4_000_000_000 }, 0.0);
        let depositor = {
            let bucket = Arc::clone(&bucket);
            thread::spawn(move || bucket.deposit(Place::NONE))
        };
        let other = {
            let bucket = Arc::clone(&bucket);
            thread::spawn(move || i64::from(bucket.withdraw(TOKEN, 2_000_000_000)))
        };
        let granted = i64::from(bucket.withdraw(TOKEN, 1_000_000_000)) + other.join().unwrap();
        depositor.join().unwrap();
        assert_eq!(granted, 2);
        assert!((0..=TOKEN).contains(&bucket.balance()));
    });
}

#[test]
fn loom_a_throttle_never_goes_below_zero() {
    model(|| {
        let bucket = bucket(TOKEN, TOKEN, Cap::Fixed(TOKEN), 0.0);
        let other = {
            let bucket = Arc::clone(&bucket);
            thread::spawn(move || bucket.charge(TOKEN, 0))
        };
        let mut left = [bucket.charge(TOKEN, 0), other.join().unwrap()];
        left.sort_unstable();
        assert_eq!((left, bucket.balance()), ([0, 0], 0));
    });
}
