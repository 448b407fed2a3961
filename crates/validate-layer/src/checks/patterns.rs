//! Regular expressions: what a text must match, and what it must not.

use std::fmt;

use failsoft_core::{ConfigError, Finding, Report, SoftKind};
use regex::{Regex, RegexBuilder};

use crate::{Answer, Check};

/// A compiled pattern may take so many bytes.
const MAX_PATTERN: usize = 1 << 20;

/// The text matches a regular expression, or does not. Matching takes linear time, whatever the pattern and the text.
///
/// The pattern may match anywhere in the text: anchor it with `^` and `$` where the whole text is meant. The syntax is that of the
/// crate [`regex`](https://docs.rs/regex). The findings are of [`SoftKind::Schema`]; another one is set with
/// [`kind`](Self::kind). They name the pattern, never what it matched.
///
/// ```
/// use validate_layer::{Check, checks::Pattern};
///
/// let date = Pattern::required(r"^\d{4}-\d{2}-\d{2}$")?;
/// assert!(date.on_text("2026-11-30").is_empty());
/// assert_eq!(date.on_text("tomorrow").leading().unwrap().code(), "pattern.missing");
///
/// let key = Pattern::forbidden(r"\bsk-[A-Za-z0-9]{20,}")?;
/// assert_eq!(key.on_text("use sk-abcdefghijklmnopqrstuvwx").leading().unwrap().code(), "pattern.forbidden");
/// # Ok::<(), failsoft_core::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Pattern {
    regex: Regex,
    wanted: bool,
    kind: SoftKind,
}

impl Pattern {
    /// The text must match.
    ///
    /// # Errors
    ///
    /// When the pattern is none, or would take more than 1 MiB.
    pub fn required(pattern: &str) -> Result<Self, ConfigError> {
        Self::new(pattern, "must_match", true)
    }

    /// The text must not match.
    ///
    /// # Errors
    ///
    /// When the pattern is none, or would take more than 1 MiB.
    pub fn forbidden(pattern: &str) -> Result<Self, ConfigError> {
        Self::new(pattern, "must_not_match", false)
    }

    fn new(pattern: &str, field: &'static str, wanted: bool) -> Result<Self, ConfigError> {
        let built = RegexBuilder::new(pattern).size_limit(MAX_PATTERN).dfa_size_limit(MAX_PATTERN).build();
        match built {
            Ok(regex) => Ok(Self { regex, wanted, kind: SoftKind::Schema }),
            Err(_) => {
                let expected = "a regular expression without lookaround, of at most 1 MiB compiled";
                Err(ConfigError::new("ValidateLayer", field, format_args!("{pattern:.100?}"), expected))
            }
        }
    }

    /// In which way an answer is wrong that fails this. Default: [`SoftKind::Schema`].
    #[must_use]
    pub const fn kind(mut self, kind: SoftKind) -> Self {
        self.kind = kind;
        self
    }
}

impl Check for Pattern {
    fn check(&self, answer: &Answer, report: &mut Report) {
        let Some(text) = answer.text().filter(|_| answer.is_textual()) else { return };
        if self.regex.is_match(text) == self.wanted {
            return;
        }
        let (code, what) = if self.wanted {
            ("pattern.missing", "does not match")
        } else {
            ("pattern.forbidden", "must not match")
        };
        report.push(Finding::new(self.kind, code, format!("the text {what} `{}`", self.regex.as_str())));
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pattern").field("regex", &self.regex.as_str()).field("wanted", &self.wanted).finish()
    }
}
