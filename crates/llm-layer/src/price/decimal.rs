//! Amounts as exact decimals.

/// An amount of money, in units of 10⁻²⁴. Sums and products saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Decimal(u128);

/// So many digits are kept after the point: what a price that went through a binary float is written with.
const PLACES: i64 = 24;

impl Decimal {
    /// The price of one token where a million cost so many micro-units.
    pub(super) const fn millionth(micros: u64) -> Self {
        // 10⁻⁶ of 10⁻⁶.
        Self((micros as u128).saturating_mul(10_u128.pow(PLACES as u32 - 12)))
    }

    /// A number as JSON has it. Digits beyond the last place are rounded up; `None` for what is negative or no number.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if whole.len() + fraction.len() == 0
            || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit())
        {
            return None;
        }
        let digits = whole.bytes().chain(fraction.bytes()).skip_while(|digit| *digit == b'0');
        let digits: Vec<u8> = digits.map(|digit| digit - b'0').collect();
        // The place of the last digit, counted from ours.
        let shift = i64::from(exponent) - fraction.len() as i64 + PLACES;
        let kept = usize::try_from(digits.len() as i64 + shift.min(0)).unwrap_or(0);
        let mut value = digits[..kept]
            .iter()
            .fold(0_u128, |value, digit| value.saturating_mul(10).saturating_add(u128::from(*digit)));
        if value > 0 {
            let power = u32::try_from(shift.max(0)).unwrap_or(u32::MAX);
            value = value.saturating_mul(10_u128.checked_pow(power).unwrap_or(u128::MAX));
        }
        let is_cut = digits[kept..].iter().any(|digit| *digit > 0);
        Some(Self(value.saturating_add(u128::from(is_cut))))
    }

    pub(super) const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    pub(super) const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count as u128))
    }

    /// In millionths, rounded up.
    pub(super) fn micros(self) -> u64 {
        u64::try_from(self.0.div_ceil(10_u128.pow(PLACES as u32 - 6))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Option<u128> {
        Decimal::parse(text).map(|decimal| decimal.0)
    }

    #[test]
    fn decimals_are_read_as_they_are_written() {
        for (text, units) in [
            ("0", 0),
            ("0.0", 0),
            ("2.5e-06", 2_500_000_000_000_000_000),
            ("2.5E-6", 2_500_000_000_000_000_000),
            ("0.0000025", 2_500_000_000_000_000_000),
            ("25e-7", 2_500_000_000_000_000_000),
            ("1.8750000000000003e-07", 187_500_000_000_000_030),
            ("1e-24", 1),
            ("1e+2", 10_u128.pow(26)),
            ("0.001e3", 10_u128.pow(24)),
        ] {
            assert_eq!(parsed(text), Some(units), "{text}");
        }
    }

    #[test]
    fn what_is_too_small_is_not_free_and_what_is_too_large_saturates() {
        assert_eq!(parsed("1e-25"), Some(1));
        assert_eq!(parsed("1e-2000000000"), Some(1));
        assert_eq!(parsed("1.0000000000000000000000000e-24"), Some(1));
        assert_eq!(parsed("1e2000000000"), Some(u128::MAX));
        assert_eq!(parsed("0e2000000000"), Some(0));
        assert_eq!(Decimal(u128::MAX).micros(), u64::MAX);
        assert_eq!(Decimal(1).times(1).micros(), 1);
    }

    #[test]
    fn what_is_no_decimal_is_none() {
        for text in ["", ".", "-1", "+1", "NaN", "1e", "1e5000000000", "1.2.3", "0x1", " 1", "\"1\"", "null"]
        {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn however_a_decimal_is_written_it_is_the_same(digits in 0_u64..1_000_000_000, places in 0_u32..24) {
            let exact = u128::from(digits) * 10_u128.pow(24 - places);
            prop_assert_eq!(parsed(&format!("{digits}e-{places}")), Some(exact));
            let text = format!("{digits:0>width$}", width = places as usize + 1);
            let (whole, fraction) = text.split_at(text.len() - places as usize);
            prop_assert_eq!(parsed(&format!("{whole}.{fraction}")), Some(exact));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "[0-9.eE+-]{0,40}") {
            let _ = Decimal::parse(&text).map(Decimal::micros);
        }
    }
}
