//! What a call counts for, from its estimate and from what its attempts said. Pure.

use failsoft_core::{Class, Usage, Verdict};

use crate::{Estimate, Outcome};

/// How a call ended, as far as its cost depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    /// The last attempt was turned down before it cost anything.
    pub(crate) turned_down: bool,
}

impl Ended {
    /// Never 0.
    pub(crate) const fn to_bits(self) -> u16 {
        self.outcome.index() as u16 + 1 + ((self.turned_down as u16) << 8)
    }

    pub(crate) fn from_bits(bits: u16) -> Option<Self> {
        let index = usize::from(bits & 0xff).checked_sub(1)?;
        Some(Self { outcome: *Outcome::ALL.get(index)?, turned_down: bits >> 8 != 0 })
    }

    pub(crate) const CANCELLED: Self = Self { outcome: Outcome::Cancelled, turned_down: false };

    /// At the end of a body, or without one being seen: something may have been spent.
    pub(crate) fn after(verdict: &Verdict) -> Self {
        Self { outcome: verdict.class().into(), turned_down: false }
    }

    /// Before it was sent.
    pub(crate) fn unsent(verdict: &Verdict) -> Self {
        Self { outcome: verdict.class().into(), turned_down: true }
    }

    /// Before any body: by the response's head, or by an error.
    #[inline]
    pub(crate) fn before_body(verdict: &Verdict, status: Option<u16>) -> Self {
        Self { outcome: verdict.class().into(), turned_down: is_turned_down(verdict, status) }
    }
}

/// Providers charge nothing for what they turn down. A gateway's timeout says nothing of the provider behind it, and a lost
/// connection nothing of the work that had begun.
fn is_turned_down(verdict: &Verdict, status: Option<u16>) -> bool {
    match verdict.class() {
        _ if verdict.is_unsent() => true,
        Class::RateLimited
        | Class::Overloaded
        | Class::Quota
        | Class::Auth
        | Class::ModelNotFound
        | Class::ContextLength
        | Class::Invalid => true,
        Class::Transient => status.is_some_and(|status| status >= 400 && !matches!(status, 408 | 504 | 524)),
        _ => false,
    }
}

/// What a call counts for, in whatever unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// What the attempts said, with the estimate in place of a part that they left out.
    said: Usage,
    /// It counts for the estimate at least.
    at_least_estimated: bool,
    /// So many attempts said nothing, and count for the estimate each.
    silent: u32,
    /// Whether an estimate stands in for anything.
    pub(crate) unknown: bool,
    /// Nothing was sent, or it was turned down: no attempt has cost anything.
    pub(crate) is_free: bool,
}

impl Cost {
    /// All of it, and how much of that is the estimate of attempts that said nothing. `estimated` is what one attempt was estimated
    /// at, in the same unit.
    pub(crate) fn measure(&self, estimated: u64, measure: impl FnOnce(&Usage) -> u64) -> (u64, u64) {
        let said = measure(&self.said).max(if self.at_least_estimated { estimated } else { 0 });
        let guessed = estimated.saturating_mul(u64::from(self.silent));
        (said.saturating_add(guessed), guessed)
    }
}

/// Adds up what the attempts said, with the estimate for what they did not say.
///
/// `silent` attempts ended without a word. Where no attempt was even opened, nobody reads answers: then the estimate
/// stands for the whole call.
pub(crate) fn cost(estimate: &Estimate, usage: &Usage, silent: u32, ended: Ended, cut_in_full: bool) -> Cost {
    let nobody_spoke = usage.is_unknown();
    let silent = match silent {
        0 if nobody_spoke => 1,
        silent => silent,
    };
    let silent = silent.saturating_sub(u32::from(nobody_spoke && ended.turned_down));
    if nobody_spoke {
        let (said, is_free) = (Usage::default(), silent == 0);
        return Cost { said, at_least_estimated: false, silent, unknown: silent > 0, is_free };
    }
    let (mut said, knows_input, knows_output) = (*usage, knows_input(usage), knows_output(usage));
    let known = knows_input && knows_output;
    if let Some((input, output)) = estimate.split() {
        if !knows_input {
            said.input = Some(input);
        }
        if !knows_output {
            said.output = Some(output);
        }
    }
    let is_cut = match ended.outcome {
        Outcome::Cancelled | Outcome::Transient | Outcome::Timeout | Outcome::Unknown => true,
        Outcome::Success => false,
        // One that came to its end says what it used; one that does not ended too early, whatever it ended with.
        _ => !known,
    };
    let in_full = cut_in_full && is_cut && !ended.turned_down;
    Cost {
        said,
        at_least_estimated: in_full || (!known && estimate.split().is_none()),
        silent,
        unknown: silent > 0 || !known || in_full,
        is_free: false,
    }
}

/// Teaches the estimate how long a complete answer was: one that ended well, of one attempt, that says itself what it used.
#[inline]
pub(crate) fn teach(estimate: &Estimate, usage: &Usage, silent: u32, further_attempts: u32, ended: Ended) {
    let Some(average) = estimate.learns() else { return };
    let is_one = silent == 0 && further_attempts == 0;
    if is_one && ended.outcome == Outcome::Success && knows_input(usage) && knows_output(usage) {
        average.learn(if estimate.split().is_some() { usage.total_output() } else { usage.total() });
    }
}

fn knows_input(usage: &Usage) -> bool {
    usage.input.or(usage.cache_read).or(usage.cache_write).is_some()
}

fn knows_output(usage: &Usage) -> bool {
    usage.output.or(usage.reasoning).is_some()
}

#[cfg(all(test, not(failsoft_loom)))]
mod tests {
    use std::io;

    use failsoft_core::Denier;

    use super::*;

    const ESTIMATE: Estimate = Estimate::parts(10, 100);
    const GOOD: Ended = Ended { outcome: Outcome::Success, turned_down: false };
    const DROPPED: Ended = Ended::CANCELLED;

    fn usage(input: Option<u64>, output: Option<u64>) -> Usage {
        Usage { input, output, ..Usage::default() }
    }

    fn tokens(usage: &Usage, silent: u32, ended: Ended) -> (u64, bool) {
        let cost = cost(&ESTIMATE, usage, silent, ended, false);
        (all(&cost, &ESTIMATE), cost.unknown)
    }

    fn all(cost: &Cost, estimate: &Estimate) -> u64 {
        cost.measure(estimate.total(), Usage::total).0
    }

    #[test]
    fn what_was_said_counts_with_all_buckets() {
        assert_eq!(tokens(&usage(Some(9), Some(12)), 0, GOOD), (21, false));
        // G94: disjoint buckets, each counted once.
        let cached = Usage {
            cache_read: Some(70),
            cache_write: Some(5),
            reasoning: Some(4),
            ..usage(Some(1), Some(2))
        };
        assert_eq!(tokens(&cached, 0, GOOD), (82, false));
    }

    // G96, V-H6
    #[test]
    fn a_call_that_says_nothing_keeps_its_estimate_and_an_explicit_zero_is_honoured() {
        assert_eq!(tokens(&usage(None, None), 0, GOOD), (110, true));
        assert_eq!(tokens(&usage(None, None), 1, GOOD), (110, true));
        assert_eq!(tokens(&usage(Some(0), Some(0)), 0, GOOD), (0, false));
    }

    // G97, V-H4
    #[test]
    fn a_dropped_call_counts_the_input_and_the_output_that_was_seen() {
        assert_eq!(tokens(&usage(None, Some(30)), 0, DROPPED), (40, true));
        assert_eq!(tokens(&usage(Some(7), None), 0, DROPPED), (107, true));
        assert_eq!(tokens(&usage(None, None), 1, DROPPED), (110, true));
        let cost = |output| all(&cost(&ESTIMATE, &usage(Some(7), Some(output)), 0, DROPPED, true), &ESTIMATE);
        assert_eq!((cost(30), cost(300)), (110, 307), "in full, but never less than what was seen");
    }

    // A stream that ended without its end was booked by what was seen, a token below the bill.
    #[test]
    fn an_answer_that_ended_too_early_is_cut_and_one_that_says_what_it_used_is_not() {
        for outcome in [Outcome::Soft, Outcome::Overloaded, Outcome::Refused] {
            let ended = Ended { outcome, turned_down: false };
            let cost = |usage| all(&cost(&ESTIMATE, &usage, 0, ended, true), &ESTIMATE);
            assert_eq!((cost(usage(None, Some(30))), cost(usage(Some(7), Some(30)))), (110, 37), "{outcome}");
        }
    }

    #[test]
    fn an_estimate_of_the_whole_stands_in_where_a_part_is_missing() {
        let whole = Estimate::whole(50);
        let cost = |usage| all(&cost(&whole, &usage, 0, DROPPED, false), &whole);
        assert_eq!([cost(usage(None, Some(30))), cost(usage(Some(70), None))], [50, 70]);
        assert_eq!(cost(usage(Some(1), Some(2))), 3);
    }

    // G99
    #[test]
    fn silent_attempts_add_the_estimate_to_what_the_others_said() {
        assert_eq!(tokens(&usage(Some(9), Some(1)), 2, GOOD), (230, true));
    }

    #[test]
    fn what_was_turned_down_costs_nothing() {
        let down = |class: Class, status| Ended::before_body(&Verdict::of(class), status);
        for ended in [
            down(Class::RateLimited, Some(429)),
            down(Class::Transient, Some(500)),
            down(Class::Invalid, Some(400)),
            down(Class::Denied(Denier::Circuit), None),
            Ended::before_body(&Verdict::of_error(&io::Error::from(io::ErrorKind::ConnectionRefused)), None),
        ] {
            assert_eq!(tokens(&usage(None, None), 0, ended), (0, false), "{ended:?}");
            assert_eq!(tokens(&usage(None, None), 1, ended), (0, false), "{ended:?}");
            assert_eq!(
                tokens(&usage(None, None), 2, ended),
                (110, true),
                "of two, one may have cost something"
            );
        }
        for ended in [
            down(Class::Transient, Some(504)),
            down(Class::Transient, None),
            down(Class::Unknown, None),
            Ended::after(&Verdict::of(Class::Overloaded)),
        ] {
            assert_eq!(tokens(&usage(None, None), 0, ended), (110, true), "{ended:?}");
        }
    }

    #[test]
    fn an_end_is_the_same_after_it_was_packed() {
        for outcome in Outcome::ALL {
            for turned_down in [false, true] {
                let ended = Ended { outcome, turned_down };
                assert_eq!(Ended::from_bits(ended.to_bits()), Some(ended));
            }
        }
        assert_eq!(Ended::from_bits(0), None);
    }

    #[test]
    fn only_a_complete_answer_that_says_what_it_used_teaches() {
        let average = crate::Learned::new().of("model");
        let learning = ESTIMATE.learning(average.clone());
        let known = usage(Some(10), Some(50));
        let cut = Ended { outcome: Outcome::Transient, ..GOOD };
        for (usage, silent, further_attempts, ended) in [
            (known, 1, 0, GOOD),
            (known, 0, 1, GOOD),
            (known, 0, 0, DROPPED),
            (known, 0, 0, cut),
            (usage(None, Some(50)), 0, 0, GOOD),
            (usage(Some(10), None), 0, 0, GOOD),
        ] {
            (0..20).for_each(|_| teach(&learning, &usage, silent, further_attempts, ended));
        }
        assert_eq!(average.expected(), None);
        (0..20).for_each(|_| teach(&learning, &known, 0, 0, GOOD));
        assert!(average.expected().is_some_and(|expected| (50..60).contains(&expected)), "{average:?}");
        let average = crate::Learned::new().of("tool");
        let learning = Estimate::whole(500).learning(average.clone());
        (0..20).for_each(|_| teach(&learning, &known, 0, 0, GOOD));
        assert!(average.expected().is_some_and(|expected| (60..70).contains(&expected)), "{average:?}");
    }

    #[test]
    fn sums_saturate() {
        let most = Estimate::parts(u64::MAX, u64::MAX);
        let cost = cost(&most, &usage(Some(u64::MAX), None), 9, GOOD, false);
        assert_eq!(all(&cost, &most), u64::MAX);
    }
}
