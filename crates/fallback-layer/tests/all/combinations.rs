//! Every documented combination of options, and what none of them may do.

use std::time::Duration;

use crate::support::Fit;
use failsoft_core::{Class, Cloned, Condition, SoftKind, Verdict, classify_fn};
use fallback_layer::{
    FallbackLayer, Order, Return, Route, Row, To, WhenAllPoor,
    last_good::{self, Key},
};
use tower::{Layer, ServiceExt, service_fn};

/// An answer, of which only this one is good.
const GOOD: u16 = 200;
const BAD: [(u16, Class); 2] = [(204, Class::Soft(SoftKind::Empty)), (400, Class::Invalid)];

fn class(status: u16) -> Class {
    BAD.iter().find(|(bad, _)| *bad == status).map_or(Class::Success, |(_, class)| *class)
}

/// Every choice of each option, with each route good or bad in each way.
fn each_combination(mut f: impl FnMut([Option<u16>; 3], Return, WhenAllPoor, Order, u8)) {
    let does = [None, Some(GOOD), Some(204), Some(400)];
    for a in does {
        for b in does {
            for c in does {
                for returns in [Return::Combined, Return::First, Return::Last] {
                    for poor in [WhenAllPoor::LastResort, WhenAllPoor::FailFast, WhenAllPoor::Wait] {
                        for order in [Order::Fixed, Order::LeastLatency] {
                            for options in 0..32 {
                                f([a, b, c], returns, poor, order, options);
                            }
                        }
                    }
                }
            }
        }
    }
}

// P19
#[test]
fn no_combination_of_options_takes_a_bad_answer_for_a_good_one_or_gives_up_while_a_route_could_answer() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let mut seen = 0_u32;
    each_combination(|does, returns, when_all_poor, order, options| {
        let set = |bit: u8| options & 1 << bit != 0;
        let [first, second, third] = does.map(|does| {
            service_fn(move |_: u8| async move {
                does.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::TimedOut))
            })
        });
        let health = |poor: bool| Fit::new(if poor { Condition::Poor } else { Condition::Good }, Some(1));
        let layer = FallbackLayer::builder()
            .classify(classify_fn(|status: &u16| Verdict::of(class(*status))))
            .replay(Cloned)
            .returns(returns)
            .when_all_poor(when_all_poor)
            .order(order)
            .promote_last_good(set(0))
            .health(health(set(1)))
            .route(Route::new("second", second).health(health(set(2))))
            .route(Route::new("third", third))
            .next(Row::Invalid, if set(3) { To::Any } else { To::Nowhere })
            .slow_start(Duration::from_secs(1))
            .sticky(|_: &u8| Some(1));
        let answer = if set(4) {
            let layer = layer.keep_last_good(last_good::cloned(|_: &u8| Some(Key::new("t", [1]))));
            runtime.block_on(layer.build().unwrap().layer(first).oneshot(1))
        } else {
            runtime.block_on(layer.build().unwrap().layer(first).oneshot(1))
        };
        let can = does.contains(&Some(GOOD));
        // What no route can help with ends the call, by the table.
        let ends = does.contains(&Some(400)) && !set(3);
        // Routes in poor health may be left unasked where that is what was asked for.
        let fails_fast = when_all_poor == WhenAllPoor::FailFast && (set(1) || set(2));
        let may_fail = !can || ends || fails_fast;
        match answer {
            Ok(GOOD) => assert!(can, "an answer from nowhere"),
            // The failed response of a route, as it is; its verdict is what it was.
            Ok(bad) => assert!(class(bad) != Class::Success && does.contains(&Some(bad)) && may_fail),
            Err(_) => assert!(may_fail, "{does:?} {returns:?} {when_all_poor:?} {order:?} {options:b}"),
        }
        seen += 1;
    });
    assert_eq!(seen, 64 * 18 * 32);
}

// P18
#[test]
fn the_documented_examples_are_compiled_and_run() {
    // The README is part of the crate's documentation tests; an example that is not run must not slip in.
    let readme = include_str!("../../README.md");
    let library = include_str!("../../src/lib.rs");
    assert!(library.contains("doc = include_str!(\"../README.md\")"));
    let fences: Vec<_> = readme.lines().filter(|line| line.starts_with("```") && line.len() > 3).collect();
    assert!(
        fences.contains(&"```rust") && fences.iter().all(|fence| matches!(*fence, "```rust" | "```toml"))
    );
    for module in [
        include_str!("../../src/adapt.rs"),
        include_str!("../../src/last_good.rs"),
        include_str!("../../src/order.rs"),
        include_str!("../../src/route.rs"),
        include_str!("../../src/table.rs"),
        library,
    ] {
        assert!(module.contains("//! ```\n"), "each module has an example that is run");
        for skipped in ["```ignore", "```no_run", "```text", "```compile_fail"] {
            assert!(!module.contains(skipped), "{skipped}");
        }
    }
}
