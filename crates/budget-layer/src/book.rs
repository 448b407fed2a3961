//! [`Book`]: what was spent, by session, tool, model, route and outcome.
//!
//! ```
//! use budget_layer::{Book, BudgetLayer, Filter, GroupBy, Labels};
//! use failsoft_core::{BoxError, Call, ErrorsOnly, Usage};
//! use tower::{Layer, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let book = Book::new();
//! let layer = BudgetLayer::builder()
//!     .key_fn(|prompt: &&str| prompt.split(':').next().unwrap_or_default().to_owned())
//!     .book(book.clone(), |_: &&str| Labels::new().model("small"))
//!     .estimate_fixed(300)
//!     .classify(ErrorsOnly)
//!     .build()?;
//! let model = layer.layer(tower::service_fn(|_: &str| async {
//!     // What an llm-layer does.
//!     let used = Usage { input: Some(10), output: Some(240), ..Usage::default() };
//!     Call::slot().expect("a budget stands around").set(&used);
//!     Ok::<_, BoxError>("an answer")
//! }));
//! model.clone().oneshot("7: what is the weather?").await?;
//! model.oneshot("8: and tomorrow?").await?;
//!
//! assert_eq!(book.sum(&Filter::all().session("7")).tokens, 250);
//! assert_eq!(book.sum_by(GroupBy::Model, &Filter::all())[&Some("small".into())].calls, 2);
//! # Ok(())
//! # }
//! ```

mod booking;
mod filter;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    ops::AddAssign,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub(crate) use self::booking::{Booking, Guess, Total};
pub use self::filter::{Filter, GroupBy};
use crate::Outcome;

/// So many rows a book has, unless it is told otherwise.
const MAX_ROWS: usize = 10_000;

/// A longer name is cut, in bytes: callers make some up, and a row must not be as large as their requests.
const MAX_NAME: usize = 256;

/// What there was no room for.
const OTHER: &str = "(other)";

/// What was spent, in rows; clones are the same book, and several layers may write in one.
///
/// The sums of all rows are what the budgets were charged: each call stands in one row for its last attempt, and its other attempts each
/// in theirs, with the estimates for what nobody knew. Of calls that were denied there is nothing in it.
#[derive(Clone)]
pub struct Book(Arc<Inner>);

struct Inner {
    most: usize,
    rows: Mutex<HashMap<Name, Amounts>>,
}

/// Which row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    labels: Labels,
    outcome: Outcome,
    part: Part,
}

/// What something was spent for. What is not known is `None`; of names longer than 256 bytes a [`Book`] keeps the beginning
/// and a checksum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct Labels {
    /// Whose call it was: the key of the layer's first budget, unless it is said otherwise.
    pub session: Option<Arc<str>>,
    /// The tool that was called.
    pub tool: Option<Arc<str>>,
    /// The model.
    pub model: Option<Arc<str>>,
    /// Who was asked: what the reader of the answer says, such as the name of an llm-layer; else what the function says.
    pub route: Option<Arc<str>>,
}

/// Which part of a call it was spent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Part {
    /// The attempt with which the call ended.
    Last,
    /// An attempt that failed before that.
    Failed,
    /// An attempt that was dropped beside it, such as the loser of a hedge.
    Overtaken,
    /// What came after the call was settled.
    Late,
}

/// What was spent, all in whole numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct Amounts {
    /// Calls, each in the row of its last attempt.
    pub calls: u64,
    /// Attempts of which somebody read the answer, or the call, where nobody did.
    pub attempts: u64,
    /// Tokens of prompts that somebody told.
    pub input: u64,
    /// Tokens of answers that somebody told.
    pub output: u64,
    /// All tokens that were charged: what was told, and estimated in place of what was not.
    pub tokens: u64,
    /// How many of those are estimates.
    pub estimated: u64,
    /// Money, in millionths, where there is a price.
    pub money: u64,
}

/// One row of a [`Book`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Row {
    /// What for.
    pub labels: Labels,
    /// How it ended.
    pub outcome: Outcome,
    /// In which part of a call.
    pub part: Part,
    /// What was spent.
    pub amounts: Amounts,
}

impl Labels {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whose call it is.
    #[must_use]
    pub fn session(mut self, session: impl Into<Arc<str>>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// The tool that is called.
    #[must_use]
    pub fn tool(mut self, tool: impl Into<Arc<str>>) -> Self {
        self.tool = Some(tool.into());
        self
    }

    /// The model that is asked.
    #[must_use]
    pub fn model(mut self, model: impl Into<Arc<str>>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Who is asked, where the reader of the answer does not know better.
    #[must_use]
    pub fn route(mut self, route: impl Into<Arc<str>>) -> Self {
        self.route = Some(route.into());
        self
    }

    /// The session, where none was said.
    pub(crate) fn or_session(self, session: impl FnOnce() -> Option<Arc<str>>) -> Self {
        Self { session: self.session.or_else(session), ..self }
    }
}

impl Part {
    /// A short stable name, for labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Failed => "failed",
            Self::Overtaken => "overtaken",
            Self::Late => "late",
        }
    }
}

impl Book {
    /// Of at most 10 000 rows.
    #[must_use]
    pub fn new() -> Self {
        Self::with_rows(MAX_ROWS)
    }

    /// Of at most so many rows, at least 1. What comes when it is full stands under the session `(other)`, and where there is no
    /// row for that either, under `(other)` alone: those may be 60 more. Nothing is left out of a sum.
    #[must_use]
    pub fn with_rows(most: usize) -> Self {
        Self(Arc::new(Inner { most: most.max(1), rows: Mutex::default() }))
    }

    /// All rows that a filter lets through, in the order of their labels. This looks at everything, as do all that follow.
    #[must_use]
    pub fn rows(&self, filter: &Filter) -> Vec<Row> {
        let mut rows: Vec<_> =
            self.lock().iter().filter_map(|(name, amounts)| filter.row(name, *amounts)).collect();
        rows.sort_by(|a, b| a.order().cmp(&b.order()));
        rows
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self, filter: &Filter) -> Amounts {
        let mut sum = Amounts::default();
        self.lock().iter().filter(|(name, _)| filter.passes(name)).for_each(|(_, amounts)| sum += *amounts);
        sum
    }

    /// Their sums, by what each of them has in one column; `None` where that is not known.
    #[must_use]
    pub fn sum_by(&self, by: GroupBy, filter: &Filter) -> BTreeMap<Option<Arc<str>>, Amounts> {
        let mut sums = BTreeMap::<_, Amounts>::new();
        for (name, amounts) in self.lock().iter().filter(|(name, _)| filter.passes(name)) {
            *sums.entry(by.of(name)).or_default() += *amounts;
        }
        sums
    }

    /// Takes them out: of sessions that are over, or to be written elsewhere.
    #[must_use = "they are in no book any more"]
    pub fn take(&self, filter: &Filter) -> Vec<Row> {
        let mut rows = Vec::new();
        self.lock().retain(|name, amounts| {
            let row = filter.row(name, *amounts);
            let stays = row.is_none();
            rows.extend(row);
            stays
        });
        rows.sort_by(|a, b| a.order().cmp(&b.order()));
        rows
    }

    /// Adds what stands in a row, such as one of another process.
    pub fn add(&self, row: &Row) {
        let Row { labels, outcome, part, amounts } = row;
        self.book(
            &mut self.lock(),
            Name { labels: labels.clone(), outcome: *outcome, part: *part },
            *amounts,
        );
    }

    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether nothing was spent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn book(&self, rows: &mut HashMap<Name, Amounts>, mut name: Name, amounts: Amounts) {
        let Labels { session, tool, model, route } = &mut name.labels;
        for label in [session, tool, model, route].into_iter().flatten() {
            cut(label);
        }
        let has_room =
            |rows: &HashMap<Name, Amounts>, name: &Name| rows.len() < self.0.most || rows.contains_key(name);
        if !has_room(rows, &name) {
            name.labels.session = Some(OTHER.into());
            if !has_room(rows, &name) {
                name.labels = Labels { session: Some(OTHER.into()), ..Labels::default() };
            }
        }
        *rows.entry(name).or_default() += amounts;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Amounts>> {
        self.0.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cuts a name at a character, and adds a checksum: two that begin alike, such as tokens of one issuer, stay two.
fn cut(name: &mut Arc<str>) {
    if name.len() > MAX_NAME {
        let end = (0..=MAX_NAME - 19).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
        // FNV-1a, which is the same in every process.
        let sum = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        *name = format!("{}…{sum:016x}", &name[..end]).into();
    }
}

impl Default for Book {
    fn default() -> Self {
        Self::new()
    }
}

impl Row {
    fn order(&self) -> impl Ord + '_ {
        let Labels { session, tool, model, route } = &self.labels;
        (session, tool, model, route, self.outcome, self.part)
    }
}

impl AddAssign for Amounts {
    /// Adds figure by figure, saturating.
    fn add_assign(&mut self, other: Self) {
        let add = |mine: &mut u64, other: u64| *mine = mine.saturating_add(other);
        add(&mut self.calls, other.calls);
        add(&mut self.attempts, other.attempts);
        add(&mut self.input, other.input);
        add(&mut self.output, other.output);
        add(&mut self.tokens, other.tokens);
        add(&mut self.estimated, other.estimated);
        add(&mut self.money, other.money);
    }
}

impl fmt::Debug for Book {
    /// Without the rows, whose sessions may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Book").field("rows", &self.len()).field("most", &self.0.most).finish_non_exhaustive()
    }
}
