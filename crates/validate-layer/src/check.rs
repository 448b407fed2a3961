//! [`Check`]: one thing that an answer must hold, usable alone or in a layer.
//!
//! ```
//! use failsoft_core::{Finding, Report, SoftKind};
//! use validate_layer::{Answer, Check, check_fn};
//!
//! struct NoApology;
//!
//! impl Check for NoApology {
//!     fn check(&self, answer: &Answer, report: &mut Report) {
//!         if answer.text().is_some_and(|text| text.starts_with("I'm sorry")) {
//!             report.push(Finding::new(SoftKind::Schema, "apology", "an apology instead of an answer"));
//!         }
//!     }
//! }
//!
//! assert!(!NoApology.on_text("I'm sorry, I can't.").is_empty());
//! assert!(NoApology.on_text("42").is_empty());
//!
//! // The same as a function.
//! let check = check_fn("apology", |answer: &Answer| match answer.text() {
//!     Some(text) if text.starts_with("I'm sorry") => Err("an apology instead of an answer"),
//!     _ => Ok(()),
//! });
//! assert_eq!(check.on_text("I'm sorry, I can't.").leading().unwrap().code(), "apology");
//! ```

use std::{borrow::Cow, fmt, sync::Arc};

use failsoft_core::{Finding, Report, SoftKind};
use serde_json::Value;

use crate::Answer;

/// One thing that an answer must hold.
///
/// A finding of [`Severity::Error`](failsoft_core::Severity::Error) fails the answer; what is less is reported with an
/// answer that passes.
pub trait Check: Send + Sync + 'static {
    /// Looks at an answer and reports what is wrong with it.
    fn check(&self, answer: &Answer, report: &mut Report);

    /// Looks at a text.
    fn on_text(&self, text: &str) -> Report {
        self.on_answer(&Answer::new(text))
    }

    /// Looks at a value.
    fn on_value(&self, value: Value) -> Report {
        self.on_answer(&Answer::from(value))
    }

    /// Looks at an answer.
    fn on_answer(&self, answer: &Answer) -> Report {
        let mut report = Report::new();
        self.check(answer, &mut report);
        report
    }
}

impl<C: Check + ?Sized> Check for Arc<C> {
    fn check(&self, answer: &Answer, report: &mut Report) {
        (**self).check(answer, report);
    }
}

/// A check made of a function. What it complains of is a [`Finding`], or a message, which becomes a finding with this
/// `code` and of [`SoftKind::Schema`]: well formed, but not what was asked for.
pub const fn check_fn<F, E>(code: &'static str, check: F) -> CheckFn<F>
where
    F: Fn(&Answer) -> Result<(), E> + Send + Sync + 'static,
    E: Into<Complaint>,
{
    CheckFn { code, check }
}

/// The check made by [`check_fn`].
#[derive(Clone, Copy)]
pub struct CheckFn<F> {
    code: &'static str,
    check: F,
}

impl<F, E> Check for CheckFn<F>
where
    F: Fn(&Answer) -> Result<(), E> + Send + Sync + 'static,
    E: Into<Complaint>,
{
    fn check(&self, answer: &Answer, report: &mut Report) {
        if let Err(complaint) = (self.check)(answer) {
            report.push(match complaint.into() {
                Complaint::Finding(finding) => finding,
                Complaint::Message(message) => Finding::new(SoftKind::Schema, self.code, message),
            });
        }
    }
}

impl<F> fmt::Debug for CheckFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CheckFn").field(&self.code).finish()
    }
}

/// What a function that checks complains of.
#[derive(Clone, Debug)]
pub enum Complaint {
    /// A finding of its own.
    Finding(Finding),
    /// A message; the check's code goes with it.
    Message(Cow<'static, str>),
}

impl From<Finding> for Complaint {
    fn from(finding: Finding) -> Self {
        Self::Finding(finding)
    }
}

impl From<&'static str> for Complaint {
    fn from(message: &'static str) -> Self {
        Self::Message(message.into())
    }
}

impl From<String> for Complaint {
    fn from(message: String) -> Self {
        Self::Message(message.into())
    }
}
