//! Base64 with the standard alphabet, as AWS's JSON has for bytes.

/// What a text stands for; `None` where it is no base64. The padding may be left out, and nothing may stand between.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    // Padding fills the last four, and no single digit is a byte.
    let padding = text.len() - digits.len();
    if digits.len() % 4 == 1 || padding > 0 && (padding > 2 || text.len() % 4 != 0) {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for four in digits.chunks(4) {
        let mut bits = 0_u32;
        for digit in four {
            bits = bits << 6 | u32::from(value(*digit)?);
        }
        bits <<= 6 * (4 - four.len());
        let [_, three @ ..] = bits.to_be_bytes();
        bytes.extend_from_slice(three.get(..four.len() - 1)?);
    }
    Some(bytes)
}

const fn value(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648_are_read_and_nothing_else_is() {
        for (text, bytes) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zg", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE=", "fooba"),
            ("Zm9vYmFy", "foobar"),
            ("w7/Dvj4+Pz8/", "ÿþ>>???"),
        ] {
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        for text in ["Z", "Zg=", "Zg===", "Z===", "Zm9v=", "Zm 9v", "Zm9v\n", "Zm-_", "=", "Zg==Zg==", "é"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
