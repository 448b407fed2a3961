//! The loop at the end of a text: its period, and how far back it goes.

use memchr::memmem;

/// So many bytes at the end occur once more before it, in any loop that counts. In other texts they hardly ever do.
const ANCHOR: usize = 24;

/// The least number of copies that is a loop.
const COPIES: usize = 4;

/// The period and the length, in bytes, of the longest end of `window` that is at least four copies of one piece. `None`
/// where there is none, and where it is too short to count.
///
/// Linear in time. Most windows cost one search for their last bytes.
pub(crate) fn tail_loop(window: &[u8]) -> Option<(usize, usize)> {
    let (before, _) = window.split_at_checked(window.len().checked_sub(1)?)?;
    let anchor = &window[window.len().checked_sub(ANCHOR)?..];
    // A loop of four copies, longer than the anchor and one copy, has the anchor once more one copy before its end.
    memmem::find(before, anchor).and_then(|_| longest_loop(window))
}

/// The same without a look at the end first: the periods of all ends, by the borders of the reversed window.
fn longest_loop(window: &[u8]) -> Option<(usize, usize)> {
    let len = window.len();
    let at = |i: usize| window[len - 1 - i];
    let mut borders = vec![0_u32; len];
    let mut found = None;
    let mut border = 0_usize;
    for i in 1..len {
        let byte = at(i);
        while border > 0 && byte != at(border) {
            border = borders[border - 1] as usize;
        }
        if byte == at(border) {
            border += 1;
        }
        borders[i] = u32::try_from(border).unwrap_or(u32::MAX);
        let (length, period) = (i + 1, i + 1 - border);
        if border >= period * (COPIES - 1) {
            found = Some((period, length));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every period of every end, one after another.
    fn obvious(window: &[u8]) -> Option<(usize, usize)> {
        (1..=window.len()).rev().find_map(|length| {
            let end = &window[window.len() - length..];
            let period = (1..=length / COPIES).find(|&p| end[p..] == end[..length - p])?;
            Some((period, length))
        })
    }

    proptest! {
        #[test]
        fn the_longest_loop_is_that_of_the_obvious_search(window in proptest::collection::vec(0..3_u8, 0..60)) {
            prop_assert_eq!(longest_loop(&window), obvious(&window));
        }

        #[test]
        fn what_is_skipped_is_too_short_to_count(
            head in proptest::collection::vec(0..3_u8, 0..40),
            unit in proptest::collection::vec(0..3_u8, 1..12),
            copies in 1..20_usize,
        ) {
            let window = [head, unit.repeat(copies)].concat();
            match (tail_loop(&window), obvious(&window)) {
                (None, Some((period, length))) => prop_assert!(length < period + ANCHOR),
                (found, expected) => prop_assert_eq!(found, expected),
            }
        }
    }
}
