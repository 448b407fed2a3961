use std::{fmt, sync::Arc, time::Duration};

use failsoft_core::{Auto, ByResponse, Class, ConfigError, Hint, Verdict};

use crate::{ReflectLayer, RetryBudget};

const NAME: &str = "ReflectLayer";

/// Beyond that, what an answer costs grows and what is cured hardly does.
const MOST_REASKS: u32 = 2;

/// Everything about a [`ReflectLayer`] that does not depend on the types of the service.
#[derive(Clone)]
pub(super) struct Policy {
    pub(super) max_reasks: u32,
    pub(super) budget: Option<RetryBudget>,
    /// Whether calls bring tokens into the budget: not where another layer on the same calls sees to that.
    pub(super) deposits: bool,
    pub(super) ready_within: Duration,
    rows: Vec<(Class, bool)>,
    reask_if: Option<Predicate>,
    pub(super) target: Option<Arc<str>>,
}

type Predicate = Arc<dyn Fn(&Verdict) -> bool + Send + Sync>;

impl Policy {
    /// Whether the verdict asks for a changed request.
    pub(super) fn wants(&self, verdict: &Verdict) -> bool {
        let class = verdict.class();
        if class.is_denied() || class.is_success() || class == Class::Cancelled {
            return false;
        }
        let row = self.rows.iter().rev().find(|(of, _)| *of == class).map(|(_, again)| *again);
        row.unwrap_or_else(|| matches!(class, Class::Soft(_)) && verdict.hint() == Hint::Modify)
            && self.reask_if.as_ref().is_none_or(|ask| ask(verdict))
    }
}

/// Sets up a [`ReflectLayer`]. Nothing is checked before [`build`](Self::build).
///
/// ```
/// use failsoft_core::{Class, SoftKind};
/// use retry_layer::{ReflectLayer, reflect::reask_fn};
///
/// let reask = reask_fn(|prompt: String, bad| Some(format!("{prompt}\n{}", bad.report())));
/// let layer = ReflectLayer::builder(reask)
///     .max_reasks(2)
///     // The same again has been tried inside; now the model is told.
///     .reask_on(Class::Soft(SoftKind::ToolCall), true)
///     .build()?;
/// # let _ = layer;
/// # Ok::<(), failsoft_core::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use = "nothing is made before `build`"]
pub struct ReflectBuilder<A, C = ByResponse, R = Auto> {
    policy: Policy,
    reask: A,
    classify: C,
    replay: R,
}

impl<A> ReflectBuilder<A> {
    pub(super) fn new(reask: A) -> Self {
        let policy = Policy {
            max_reasks: 1,
            budget: Some(RetryBudget::default()),
            deposits: true,
            ready_within: Duration::from_secs(1),
            rows: Vec::new(),
            reask_if: None,
            target: None,
        };
        Self { policy, reask, classify: ByResponse, replay: Auto }
    }
}

impl<A, C, R> ReflectBuilder<A, C, R> {
    /// The changed requests that a call may have: 1, the default, or 2.
    pub const fn max_reasks(mut self, reasks: u32) -> Self {
        self.policy.max_reasks = reasks;
        self
    }

    /// The budget that changed requests are taken from, and calls bring tokens into. Default: one of the layer's own, see
    /// [`RetryBudget`].
    pub fn budget(mut self, budget: RetryBudget) -> Self {
        self.policy.budget = Some(budget);
        self.policy.deposits = true;
        self
    }

    /// The budget of a [`RetryLayer`](crate::RetryLayer) around or inside of this layer: changed requests are taken from it, and
    /// the calls' tokens are left to that layer, which sees the same calls.
    pub fn shared_budget(mut self, budget: RetryBudget) -> Self {
        self.policy.budget = Some(budget);
        self.policy.deposits = false;
        self
    }

    /// No budget: on a bad day every call is sent [`max_reasks`](Self::max_reasks) times more.
    pub fn without_budget(mut self) -> Self {
        self.policy.budget = None;
        self
    }

    /// How long a changed request waits for the service to be ready before the outcome is returned. Default 1 s.
    pub const fn ready_within(mut self, bound: Duration) -> Self {
        self.policy.ready_within = bound;
        self
    }

    /// Changes the row of one class: whether its failures are answered by a changed request, whatever their hint. Default: soft
    /// failures whose hint is [`Modify`](Hint::Modify). Our own layers' denials never are.
    pub fn reask_on(mut self, class: Class, again: bool) -> Self {
        self.policy.rows.push((class, again));
        self
    }

    /// A last word on each verdict that would be answered by a changed request: `false` stops.
    pub fn reask_if(mut self, again: impl Fn(&Verdict) -> bool + Send + Sync + 'static) -> Self {
        self.policy.reask_if = Some(Arc::new(again));
        self
    }

    /// The target's name in faults, trails and events. Default: the request's authority.
    pub fn target(mut self, name: impl Into<Arc<str>>) -> Self {
        self.policy.target = Some(name.into());
        self
    }

    /// Who gives outcomes their verdict. Default [`ByResponse`], for HTTP responses; for plain values
    /// [`ErrorsOnly`](failsoft_core::ErrorsOnly).
    pub fn classify<D>(self, classify: D) -> ReflectBuilder<A, D, R> {
        ReflectBuilder { policy: self.policy, reask: self.reask, classify, replay: self.replay }
    }

    /// How a request is kept to be changed. Default [`Auto`], for HTTP requests, strings and the like; for other `Clone` types
    /// [`Cloned`](failsoft_core::Cloned).
    pub fn replay<Q>(self, replay: Q) -> ReflectBuilder<A, C, Q> {
        ReflectBuilder { policy: self.policy, reask: self.reask, classify: self.classify, replay }
    }

    /// Makes the layer.
    ///
    /// # Errors
    ///
    /// Names the first setting that cannot work: `max_reasks` other than 1 or 2, a blank `target`, a `reask_on` for what is no
    /// failure of a target.
    pub fn build(self) -> Result<ReflectLayer<A, C, R>, ConfigError> {
        let Policy { max_reasks, rows, target, .. } = &self.policy;
        if !(1..=MOST_REASKS).contains(max_reasks) {
            return Err(ConfigError::new(NAME, "max_reasks", max_reasks, format_args!("1 to {MOST_REASKS}")));
        }
        if target.as_ref().is_some_and(|target| target.trim().is_empty()) {
            return Err(ConfigError::new(NAME, "target", "blank", "a name"));
        }
        let never = |class: Class| class.is_denied() || class.is_success() || class == Class::Cancelled;
        if let Some((class, _)) = rows.iter().find(|(class, again)| *again && never(*class)) {
            let expected = "the class of a failure that a target can have";
            return Err(ConfigError::new(NAME, "reask_on", class, expected));
        }
        Ok(ReflectLayer::of(self.policy, self.reask, self.classify, self.replay))
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("max_reasks", &self.max_reasks)
            .field("budget", &self.budget)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

failsoft_core::unbuilt!([A, C, R] ReflectBuilder<A, C, R>);

impl<A, C, R> fmt::Debug for ReflectBuilder<A, C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReflectBuilder").field(&self.policy).finish()
    }
}
