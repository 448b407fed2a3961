//! Which rows of a book.

use std::sync::Arc;

use super::{Amounts, Labels, Name, Part, Row, cut};
use crate::Outcome;

/// Which rows of a [`Book`](super::Book): those that have everything that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Filter {
    session: Option<Arc<str>>,
    tool: Option<Arc<str>>,
    model: Option<Arc<str>>,
    route: Option<Arc<str>>,
    outcome: Option<Outcome>,
    part: Option<Part>,
}

/// A column of a [`Book`](super::Book), see [`Book::sum_by`](super::Book::sum_by).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupBy {
    /// By session.
    Session,
    /// By tool.
    Tool,
    /// By model.
    Model,
    /// By route.
    Route,
    /// By the name of the [`Outcome`].
    Outcome,
    /// By the name of the [`Part`].
    Part,
}

impl Filter {
    /// All rows.
    pub fn all() -> Self {
        Self::default()
    }

    /// Those of one session.
    pub fn session(mut self, session: impl Into<Arc<str>>) -> Self {
        self.session = Some(asked(session));
        self
    }

    /// Those of one tool.
    pub fn tool(mut self, tool: impl Into<Arc<str>>) -> Self {
        self.tool = Some(asked(tool));
        self
    }

    /// Those of one model.
    pub fn model(mut self, model: impl Into<Arc<str>>) -> Self {
        self.model = Some(asked(model));
        self
    }

    /// Those of one route.
    pub fn route(mut self, route: impl Into<Arc<str>>) -> Self {
        self.route = Some(asked(route));
        self
    }

    /// Those that ended so.
    pub const fn outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = Some(outcome);
        self
    }

    /// Those of one part of the calls.
    pub const fn part(mut self, part: Part) -> Self {
        self.part = Some(part);
        self
    }

    pub(super) fn passes(&self, name: &Name) -> bool {
        let Labels { session, tool, model, route } = &name.labels;
        let is = |wanted: &Option<Arc<str>>, label: &Option<Arc<str>>| wanted.is_none() || wanted == label;
        is(&self.session, session)
            && is(&self.tool, tool)
            && is(&self.model, model)
            && is(&self.route, route)
            && self.outcome.is_none_or(|outcome| outcome == name.outcome)
            && self.part.is_none_or(|part| part == name.part)
    }

    pub(super) fn row(&self, name: &Name, amounts: Amounts) -> Option<Row> {
        let Name { labels, outcome, part } = name;
        let (outcome, part) = (*outcome, *part);
        self.passes(name).then(|| Row { labels: labels.clone(), outcome, part, amounts })
    }
}

/// As a name stands in a book.
fn asked(name: impl Into<Arc<str>>) -> Arc<str> {
    let mut name = name.into();
    cut(&mut name);
    name
}

impl GroupBy {
    pub(super) fn of(self, name: &Name) -> Option<Arc<str>> {
        match self {
            Self::Session => name.labels.session.clone(),
            Self::Tool => name.labels.tool.clone(),
            Self::Model => name.labels.model.clone(),
            Self::Route => name.labels.route.clone(),
            Self::Outcome => Some(name.outcome.as_str().into()),
            Self::Part => Some(name.part.as_str().into()),
        }
    }
}
