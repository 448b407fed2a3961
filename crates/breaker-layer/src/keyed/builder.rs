//! The part of the builder that makes a circuit for each key.

use std::fmt;
use std::sync::Arc;

use failsoft_core::{ConfigError, DEFAULT_KEYS};

use super::circuits::{Circuits, Fits, NameOf, Plans};
use super::{KeyFn, KeyRef, KeyedBreakerLayer, OneForAll};
use crate::BreakerBuilder;
use crate::metrics::GroupMeters;

/// Keys with what is set for them; [`BreakerBuilder`] of a [`KeyedBreakerLayer`] carries it.
#[derive(Clone)]
pub struct Keys<K> {
    keyed: K,
    most: usize,
    overrides: Vec<Override>,
    name_of: Option<Arc<NameOf>>,
    #[cfg(feature = "metrics")]
    labels: usize,
}

#[derive(Clone)]
struct Override {
    fits: Fits,
    change: Arc<dyn Fn(BreakerBuilder) -> BreakerBuilder + Send + Sync>,
}

/// A circuit for each key.
impl<C> BreakerBuilder<C> {
    /// A circuit for each endpoint, model, tool, tenant or credential, by a function of the request. [`build`]
    /// then makes a [`KeyedBreakerLayer`]. The keys become the circuits' names; where they are secret, give a
    /// [`name_fn`](BreakerBuilder::name_fn).
    ///
    /// A key that is made anew for each call is allocated for each call; [`key_ref`](Self::key_ref) takes a part of
    /// the request as it stands.
    ///
    /// [`build`]: BreakerBuilder::build
    ///
    /// ```
    /// use breaker_layer::BreakerLayer;
    ///
    /// struct Chat { tenant: u32, model: &'static str }
    ///
    /// let layer = BreakerLayer::builder()
    ///     .key_fn(|chat: &Chat| format!("{}/{}", chat.tenant, chat.model))
    ///     .max_keys(1_000)
    ///     .build()?;
    /// assert!(layer.circuits().is_empty());
    /// # Ok::<(), failsoft_core::ConfigError>(())
    /// ```
    pub fn key_fn<Req, O, F>(self, key: F) -> BreakerBuilder<C, Keys<KeyFn<F, O>>>
    where
        F: Fn(&Req) -> O,
        O: AsRef<str>,
    {
        self.keyed(KeyFn::new(key))
    }

    /// As [`key_fn`](Self::key_fn), for a key that is a part of the request.
    ///
    /// ```
    /// use breaker_layer::BreakerLayer;
    ///
    /// struct Chat { model: String }
    ///
    /// let layer = BreakerLayer::builder().key_ref(|chat: &Chat| &chat.model).build()?;
    /// # Ok::<(), failsoft_core::ConfigError>(())
    /// ```
    pub fn key_ref<Req, F>(self, key: F) -> BreakerBuilder<C, Keys<KeyRef<F>>>
    where
        F: Fn(&Req) -> &str,
    {
        self.keyed(KeyRef::new(key))
    }

    /// A circuit for each host and port that requests go to, for `http::Request` and `reqwest::Request`. Requests
    /// that name none share a circuit.
    #[cfg(feature = "http")]
    pub fn per_authority(self) -> BreakerBuilder<C, Keys<super::ByAuthority>> {
        self.keyed(super::ByAuthority)
    }

    /// As [`key_fn`](Self::key_fn), with a [`Keyed`](super::Keyed) of your own.
    pub fn keyed<K>(self, keyed: K) -> BreakerBuilder<C, Keys<K>> {
        let Self { circuit, classify, waits, registries, keys: OneForAll } = self;
        let keys = Keys {
            keyed,
            most: DEFAULT_KEYS,
            overrides: Vec::new(),
            name_of: None,
            #[cfg(feature = "metrics")]
            labels: 100,
        };
        BreakerBuilder { circuit, classify, waits, registries, keys }
    }
}

/// For a circuit for each key.
impl<K, C> BreakerBuilder<C, Keys<K>> {
    /// How many keys have a circuit at most, 1 to 10 000 000. Default 10 000, which takes about 13 MiB with the
    /// default window, whatever callers make up for keys. See [`Circuits`] for what happens beyond.
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.keys.most = keys;
        self
    }

    /// Another configuration for one key. The function gets all that is set for the others and returns what is to
    /// be for this one: that changed, or another builder, such as one of the [`presets`](crate::presets). Of several
    /// that fit a key the last wins.
    pub fn override_key(
        self,
        key: impl Into<Arc<str>>,
        change: impl Fn(BreakerBuilder) -> BreakerBuilder + Send + Sync + 'static,
    ) -> Self {
        self.add_override(Fits::Key(key.into()), change)
    }

    /// Another configuration for all keys that fit, such as those of a family of models; see
    /// [`override_key`](Self::override_key). Asked once for each new key.
    pub fn override_keys(
        self,
        fits: impl Fn(&str) -> bool + Send + Sync + 'static,
        change: impl Fn(BreakerBuilder) -> BreakerBuilder + Send + Sync + 'static,
    ) -> Self {
        self.add_override(Fits::Keys(Arc::new(fits)), change)
    }

    /// What the circuit of a key is called in refusals, events, metrics and snapshots, where the key itself should
    /// not be seen, such as a credential. Default: the key. With a [`name`](Self::name) that and a slash stand
    /// before it.
    pub fn name_fn<N: Into<String>>(mut self, name: impl Fn(&str) -> N + Send + Sync + 'static) -> Self {
        self.keys.name_of = Some(Arc::new(move |key| name(key).into()));
        self
    }

    /// How many circuits have a label of their own in the [`metrics`](crate::metrics#keys), 0 to 10 000: the first that
    /// are used. All others count together. Default 100.
    #[cfg(feature = "metrics")]
    pub fn metric_keys(mut self, keys: usize) -> Self {
        self.keys.labels = keys;
        self
    }

    /// Checks everything, the overrides too.
    ///
    /// # Errors
    ///
    /// Names the first setting that is out of its range or contradicts another.
    pub fn build(self) -> Result<KeyedBreakerLayer<K, C>, ConfigError> {
        let Self { circuit, classify, waits, registries, keys } = self;
        cannot_wait(waits)?;
        if !(1..=10_000_000).contains(&keys.most) {
            return Err(ConfigError::new("BreakerLayer", "max_keys", keys.most, "1 to 10000000"));
        }
        #[cfg(feature = "metrics")]
        if keys.labels > 10_000 {
            return Err(ConfigError::new("BreakerLayer", "metric_keys", keys.labels, "0 to 10000"));
        }
        let meters = GroupMeters::new(
            #[cfg(feature = "metrics")]
            keys.labels,
        );
        let overrides = keys.overrides.into_iter().map(|Override { fits, change }| {
            let changed = change(BreakerBuilder::of(circuit.clone()));
            cannot_wait(changed.waits)?;
            Ok((fits, changed.circuit.plan()?))
        });
        let overrides = overrides.collect::<Result<_, _>>()?;
        let plans = Plans { usual: circuit.plan()?, overrides, name_of: keys.name_of };
        let circuits = Circuits::new(keys.most, plans, meters);
        registries.iter().for_each(|registry| registry.add_keyed(&circuits));
        Ok(KeyedBreakerLayer { circuits, keyed: keys.keyed, classify })
    }

    fn add_override(
        mut self,
        fits: Fits,
        change: impl Fn(BreakerBuilder) -> BreakerBuilder + Send + Sync + 'static,
    ) -> Self {
        self.keys.overrides.push(Override { fits, change: Arc::new(change) });
        self
    }
}

fn cannot_wait(waits: bool) -> Result<(), ConfigError> {
    if waits {
        let expected = "off with keys: which circuit to wait for is known only at the call";
        return Err(ConfigError::new("BreakerLayer", "pending_while_open", "on", expected));
    }
    Ok(())
}

impl<K> fmt::Debug for Keys<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("most", &self.most).finish_non_exhaustive()
    }
}
