//! Tokens of a text, without a tokenizer.

/// The most that one run of letters without a space counts for, in quarters of a token. Such a run is no language but an image or
/// a file in base64, and an image of a usual size costs about 1 100 tokens.
const MAX_RUN: u64 = 4 * 1_100;

/// About how many tokens a text has, in any script: one for 4 ASCII characters, for 2 of other alphabets, for each character of
/// Chinese, Japanese and Korean, two for an emoji. A run of base64 characters, such as an image, counts for at most 1 100.
///
/// Four *characters* a token, the usual rule, is right for English and three times too low for Chinese: 72 tokens of the `o200k`
/// vocabulary are 24 by that rule. Takes a time that is linear in the text; bytes that are no UTF-8 count by their first bits.
///
/// ```
/// use failsoft_core::estimate_tokens;
///
/// assert_eq!(estimate_tokens("what is the weather?"), 5);
/// assert_eq!(estimate_tokens("天気はどうですか"), 8);
/// assert_eq!(estimate_tokens("погода"), 3);
/// ```
#[must_use]
pub fn estimate_tokens(text: impl AsRef<[u8]>) -> u64 {
    quarters(text.as_ref()).div_ceil(4)
}

fn quarters(text: &[u8]) -> u64 {
    let (mut quarters, mut run) = (0_u64, 0_u64);
    for &byte in text {
        let is_base64 = byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_');
        if is_base64 {
            run += 1;
            quarters += 1;
            continue;
        }
        quarters -= excess(std::mem::take(&mut run));
        quarters += match byte {
            0..0x80 => 1,
            // The rest of a character: the first byte has counted it.
            0x80..0xc0 => 0,
            0xc0..0xe0 => 2,
            0xe0..0xf0 => 4,
            0xf0.. => 8,
        };
    }
    quarters - excess(run)
}

/// By how many quarters of a token a run was counted too high.
const fn excess(run: u64) -> u64 {
    run.saturating_sub(MAX_RUN)
}

#[cfg(test)]
mod tests {
    use super::*;

    // V-H8: characters by 4 counted 24 for what has 72 tokens.
    #[test]
    fn a_chinese_text_counts_each_character() {
        assert_eq!(estimate_tokens("人工智能正在改变我们的生活方式。".repeat(4)), 64);
    }

    #[test]
    fn an_image_counts_for_an_image_and_the_words_around_it_count() {
        let image = "a".repeat(2_000_000);
        assert_eq!(estimate_tokens(format!("data {image} look")), 1_100 + 3);
        assert_eq!(estimate_tokens("a".repeat(400)), 100);
    }

    #[test]
    fn any_bytes_are_counted() {
        assert_eq!(estimate_tokens([]), 0);
        assert_eq!(estimate_tokens([0xff; 4]), 8);
        assert_eq!(estimate_tokens([0x80; 4]), 0);
    }
}
