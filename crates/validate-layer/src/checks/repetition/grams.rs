//! How many of a text's pieces of eight characters are different.

/// The characters of one piece.
const GRAM: usize = 8;

/// The share of different pieces among all, 0 to 1. `None` where there are fewer than `least` characters.
///
/// Pieces are told apart by 64 bits: those of ASCII are those bits, others are mixed into them.
pub(crate) fn distinct_share(text: &str, least: usize) -> Option<f64> {
    let bytes = text.as_bytes();
    if bytes.len() < least.max(GRAM) {
        return None;
    }
    let (different, all) = if text.is_ascii() {
        let grams = bytes.windows(GRAM).map(|gram| gram.try_into().map_or(0, u64::from_le_bytes));
        count(grams, bytes.len())
    } else {
        let chars: Vec<u32> = text.chars().map(u32::from).collect();
        if chars.len() < least.max(GRAM) {
            return None;
        }
        count(chars.windows(GRAM).map(mixed), chars.len())
    };
    #[allow(clippy::cast_precision_loss, reason = "a few thousand")]
    Some(different as f64 / all as f64)
}

/// How many are different, and how many there are.
fn count(grams: impl Iterator<Item = u64>, most: usize) -> (usize, usize) {
    // At most half full; 0 stands for an empty place, and for the piece of eight NULs, of which there is at most one more.
    let places = (most * 2).next_power_of_two();
    let shift = 64 - places.trailing_zeros();
    let mut table = vec![0_u64; places];
    let (mut different, mut all) = (0, 0);
    for gram in grams {
        all += 1;
        let mut at = usize::try_from(spread(gram) >> shift).unwrap_or(0);
        loop {
            let place = &mut table[at & (places - 1)];
            if *place == gram {
                break;
            }
            if *place == 0 {
                *place = gram;
                different += 1;
                break;
            }
            at += 1;
        }
    }
    (different, all)
}

const fn spread(gram: u64) -> u64 {
    (gram ^ (gram >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn mixed(gram: &[u32]) -> u64 {
    gram.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &c| {
        (hash ^ u64::from(c)).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn obvious(text: &str) -> f64 {
        let chars: Vec<char> = text.chars().collect();
        let all: Vec<&[char]> = chars.windows(GRAM).collect();
        let different: HashSet<&[char]> = all.iter().copied().collect();
        different.len() as f64 / all.len() as f64
    }

    proptest! {
        #[test]
        fn different_pieces_are_counted_as_the_obvious_count_has_them(
            ascii in "[ab ]{8,200}", any in "[aбข字👍 ]{8,200}"
        ) {
            prop_assert_eq!(distinct_share(&ascii, 0), Some(obvious(&ascii)));
            prop_assert_eq!(distinct_share(&any, 0), Some(obvious(&any)));
        }
    }

    #[test]
    fn a_text_that_is_too_short_has_no_share() {
        assert_eq!(distinct_share("short", 0), None);
        assert_eq!(distinct_share(&"字".repeat(300), 600), None);
        assert!(distinct_share(&"字".repeat(600), 600).is_some_and(|share| share < 0.01));
    }
}
