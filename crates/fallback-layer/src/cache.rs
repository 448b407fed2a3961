//! A cache of good answers over HTTP: in front, where it saves calls, and as the last tier of a fallback, where it stands in for
//! them (feature `cache`).
//!
//! You want it in front of a model that is asked the same by many; and behind one whose outages an earlier answer may bridge. It
//! is for requests that ask and change nothing: put it where only those pass, or give the others no scope.
//!
//! ```
//! use failsoft_core::{BoxError, Insight, Verdict};
//! use fallback_layer::cache::{Cache, CacheLayer, CacheStatus};
//! use http::{Request, Response};
//! use http_body_util::{BodyExt as _, Full};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! // In place of a client with an `LlmLayer` around it, which says that the answer is good:
//! let model = service_fn(|_: Request<String>| async {
//!     let mut response = Response::new(Full::<bytes::Bytes>::from("{}"));
//!     let insight = Insight::new();
//!     insight.learn(|facts| facts.verdict = Some(Verdict::SUCCESS));
//!     response.extensions_mut().insert(insight);
//!     Ok::<_, BoxError>(response)
//! });
//! let cache = Cache::builder()
//!     .scope(|request: &Request<String>| Some(request.headers().get("x-tenant")?.to_str().ok()?.to_owned()))
//!     .build()?;
//! let service = ServiceBuilder::new().layer(CacheLayer::new(cache)).service(model);
//!
//! let ask = || Request::post("/v1/chat/completions").header("x-tenant", "a").body("{}".to_owned()).unwrap();
//! let first = service.clone().oneshot(ask()).await?;
//! assert!(CacheStatus::of(first.extensions()).is_none());
//! first.into_body().collect().await?; // it is kept when its end was seen
//! let again = service.oneshot(ask()).await?;
//! assert!(CacheStatus::of(again.extensions()).is_some());
//! # Ok::<_, BoxError>(())
//! # }).unwrap();
//! ```
//!
//! # What is the same
//!
//! A request has the same answer as another where all of this is the same: the [scope](Builder::scope); method, origin, path and
//! query; the [headers](Builder::key_header) that change answers; and the body. Of a JSON body, spaces, the order of keys and the
//! ways to write a character do not matter, and at the top the fields `stream`, `stream_options`, `user`, `safety_identifier`,
//! `metadata`, `prompt_cache_key` and `prompt_cache_retention` do not: they say who asks, or in which form. All other fields do,
//! also those that nobody knows yet; numbers as they are written. Kept is a hash of 128 bits, keyed by the process's own randomness.
//!
//! # What is kept
//!
//! | an answer is kept | and not |
//! |---|---|
//! | with status 200, read to its end, as long as announced; of a stream, up to its own last event | a redirect, an error, a cut one |
//! | whose [`Insight`](failsoft_core::Insight) says success, with a normal finish | judged by nobody, but [by option](Builder::keep_unjudged); refused, truncated, degraded |
//! | of at most [`body_cap`](Builder::body_cap) bytes | in an encoding, with trailers |
//! | without `no-store`, `private` (but [by option](Builder::keep_private)), or a cookie other than [those of the way](Builder::ignore_cookie) | that varies by a header that is not in the key |
//!
//! How long an answer is good is the [time to live](Builder::ttl), or what it says itself where that is shorter, as RFC 9111 has it:
//! `s-maxage`, but not for a cache that keeps what is `private`; else `max-age`; else `Expires` less `Date`; and an `Age`, which it had
//! when it came, counts. One that is stale at once is not kept in front. As the last tier, when nobody else can answer, a stale one is
//! given again until the time to live is over, unless it says `must-revalidate` (or `proxy-revalidate` or `s-maxage`, where they count).
//! [By option](Builder::ignore_lifetime) all that is passed over. `no-cache` on an answer does not count: providers send it with every
//! stream, and nobody could ask whether the answer to a POST is good still. A request's own `cache-control` does count: `no-store`
//! passes the cache by, `no-cache` asks anew, `max-age` takes nothing older; a call with the mark
//! [`NoCache`](failsoft_core::Mark::NoCache) asks anew too. Never looked up are methods other than GET and POST,
//! ranges, conditions, bodies that do not lie in memory, and bodies with `background` or a `conversation`.
//!
//! # What is given again
//!
//! The bytes as they came, with the headers that describe them, an `Age` (with the one that they came with), a `Cache-Status`, a [`CacheStatus`] in the extensions,
//! and the `Insight` at no usage. Where it was kept as a stream and is asked for whole, or the other way round, it is converted if
//! it is a chat completion as OpenAI has them; else it is asked for.
//!
//! # Many at once
//!
//! Of those that ask the same at once, one asks and the others follow: they get its answer when its end was seen. A leader that
//! is cancelled is followed by one of them, one that fails by two, then four, and so on; an answer that may not be kept lets all ask
//! for themselves, but for one that stood in (degraded): that is shared and not kept, so that in an outage they do not all ask
//! what is left. Followers wait without being polled; one that sees no life in the leader for
//! [`patience`](Builder::patience) takes over.
//!
//! # What is similar
//!
//! By option, an answer stands in that was given to a similar request: see [`Similar`]. It carries the mark
//! [`Degraded`](failsoft_core::Degraded) with the cosine. Scope, model, tools, limits and all messages but the last must be the
//! same. An embedder that fails or takes too long is a miss.
//!
//! ```
//! use failsoft_core::HashedNgrams;
//! use fallback_layer::cache::{Cache, Similar};
//!
//! let cache = Cache::builder().shared_by_all().similar(Similar::new(HashedNgrams::new()).threshold(0.95)).build();
//! # cache.unwrap();
//! ```
//!
//! # As the last tier
//!
//! A [`Cache`] is also what [`keep_last_good`](crate::Builder::keep_last_good) takes. Then answers are kept as they pass the
//! fallback, and given again only when every route has failed; answers that are no streams are read to their end first, so that
//! one that breaks off fails its route. [`last_good::http`](crate::last_good::http()) is the same with a key of your own.

mod body;
mod core;
mod flight;
mod form;
mod fresh;
mod keep;
mod key;
mod layer;
mod meters;
mod request;
mod similar;

use std::{fmt, sync::Arc, time::Duration};

use failsoft_core::{Call, ConfigError, Mark};
use http::{Extensions, HeaderName};

pub(crate) use self::fresh::Freshness;
pub use self::{
    body::CacheBody,
    keep::{KeepAnswer, ReplaySimilar},
    key::{ByScope, CacheKey, NoScope, Scope, SharedByAll},
    layer::{CacheLayer, Cached, CachedFuture},
    request::{Address, CacheRequest, InMemory},
    similar::Similar,
};
use self::{
    core::{COOKIES, Core},
    flight::Flights,
    key::Keys,
    meters::Meters,
};
use crate::store::Store;

/// Good answers, and the calls for them that run. Clones are the same cache.
pub struct Cache<F> {
    scope: Arc<F>,
    core: Arc<Core>,
}

/// Sets up a [`Cache`].
///
/// | setting | default | range |
/// |---|---|---|
/// | [`scope`](Self::scope) or [`shared_by_all`](Self::shared_by_all) | none: one must be said | |
/// | [`name`](Self::name) | `cache` | a token of HTTP |
/// | [`ttl`](Self::ttl) | 1 h | above 0 |
/// | [`entries`](Self::entries) | 10 000 | above 0 |
/// | [`bytes`](Self::bytes) | 64 MiB | at least 64 KiB |
/// | [`body_cap`](Self::body_cap) | 2 MiB | 1 to a quarter of `bytes` |
/// | [`patience`](Self::patience) | 60 s | above 0 |
/// | [`ignore_field`](Self::ignore_field) | see the [module](self) | |
/// | [`key_header`](Self::key_header) | see there | |
/// | [`ignore_cookie`](Self::ignore_cookie) | see there | |
/// | [`keep_private`](Self::keep_private) | `false` | not with `shared_by_all` |
/// | [`keep_unjudged`](Self::keep_unjudged) | `false` | |
/// | [`ignore_lifetime`](Self::ignore_lifetime) | `false` | |
/// | [`similar`](Self::similar) | off | |
#[must_use = "nothing is built before `build`"]
pub struct Builder<F = NoScope> {
    scope: F,
    scoped: Scoped,
    name: Arc<str>,
    ttl: Duration,
    entries: usize,
    bytes: usize,
    body_cap: usize,
    patience: Duration,
    keys: Keys,
    cookies: Vec<Box<str>>,
    private: bool,
    judged: bool,
    lifetimes: bool,
    similar: Option<Similar>,
}

#[derive(Clone, Copy, PartialEq)]
enum Scoped {
    No,
    ByFunction,
    SharedByAll,
}

impl Cache<NoScope> {
    /// Begins a cache.
    pub fn builder() -> Builder {
        Builder {
            scope: NoScope,
            scoped: Scoped::No,
            name: "cache".into(),
            ttl: Duration::from_secs(3_600),
            entries: 10_000,
            bytes: 64 * 1024 * 1024,
            body_cap: 2 * 1024 * 1024,
            patience: Duration::from_secs(60),
            keys: Keys::new(),
            cookies: COOKIES.map(Box::from).into(),
            private: false,
            judged: true,
            lifetimes: true,
            similar: None,
        }
    }
}

impl<F> Builder<F> {
    /// Whose answer it is: the tenant's or user's id, from what proves who asks and not from what anybody can write. Answers
    /// never cross scopes. A request without a scope, or with a blank one, passes by. Credentials are not looked at: put the layer
    /// behind what checks them.
    pub fn scope<Req, T, G>(self, scope: G) -> Builder<ByScope<G>>
    where
        G: Fn(&Req) -> Option<T>,
        T: Into<String>,
    {
        self.with(ByScope(scope), Scoped::ByFunction)
    }

    /// All callers may have each other's answers: they are one tenant, or nothing in the requests and answers is anybody's own. Also one
    /// without credentials, where others have some.
    pub fn shared_by_all(self) -> Builder<SharedByAll> {
        self.with(SharedByAll, Scoped::SharedByAll)
    }

    /// Its name in `Cache-Status`, in trails and metrics.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// How long an answer may be given again, where it does not say less itself: an hour, as long as most outages of model providers last.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// At most so many answers; beyond that the least recently used goes.
    pub const fn entries(mut self, entries: usize) -> Self {
        self.entries = entries;
        self
    }

    /// At most so many bytes in all. An answer counts for 2 KiB and twice its length, for what was learnt of it may repeat its
    /// text.
    pub const fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// A longer body, in bytes, is not kept. A streamed token takes about 250 bytes, so that 2 MiB are 8 000 tokens. Each answer
    /// that is being recorded takes as much while it runs.
    pub const fn body_cap(mut self, cap: usize) -> Self {
        self.body_cap = cap;
        self
    }

    /// How long a leader may show no life, neither its head nor a piece of its body, before a follower takes over: as long as
    /// a reasoning model may think. It ends a wait for a caller that does not read on, and no call.
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// One more field at the top of a JSON body that does not change the answer.
    pub fn ignore_field(mut self, field: impl Into<Box<str>>) -> Self {
        self.keys.ignored.push(field.into());
        self
    }

    /// One more header of requests that changes the answer. Those that are known: `accept`, `accept-language`, `content-type`,
    /// `content-encoding`, `host`, `anthropic-version`, `anthropic-beta`, `openai-beta`, `openai-organization`, `openai-project`.
    pub fn key_header(mut self, name: HeaderName) -> Self {
        self.keys.headers.push(name);
        self
    }

    /// One more cookie that comes with every answer and says nothing of it. Those that are known are Cloudflare's (`__cf_bm`,
    /// `_cfuvid`, `__cflb`) and those of the load balancers of AWS and Google. They are never given again.
    pub fn ignore_cookie(mut self, name: impl Into<Box<str>>) -> Self {
        self.cookies.push(name.into());
        self
    }

    /// Also keeps answers with `cache-control: private`, which Google's API sends with all. For scopes that are one user, or
    /// where the users of one scope may see each other's answers.
    pub const fn keep_private(mut self, keep: bool) -> Self {
        self.private = keep;
        self
    }

    /// Also keeps answers that nobody has judged, for services without a reader of their answers inside: a 200 is taken for
    /// a good answer then.
    pub const fn keep_unjudged(mut self, keep: bool) -> Self {
        self.judged = !keep;
        self
    }

    /// Gives answers again for the whole [time to live](Self::ttl), whatever they say of how long they are good: for a gateway that says
    /// `max-age=0` of all that it did not make for browsers.
    pub const fn ignore_lifetime(mut self, ignore: bool) -> Self {
        self.lifetimes = !ignore;
        self
    }

    /// Also finds answers to similar requests: those that are the same but for the last thing that the user says, where that is a
    /// text and [nearly the same](Similar::threshold), with the same numbers in it. As the last tier these stand in when there is no
    /// answer to the request itself; in front only [by option](CacheLayer::similar).
    pub fn similar(mut self, similar: Similar) -> Self {
        self.keys.prompts = true;
        self.similar = Some(similar);
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Without a scope, with one of the settings outside its range, or `keep_private` in a cache that all share.
    pub fn build(self) -> Result<Cache<F>, ConfigError> {
        self.check()?;
        let core = Core {
            meters: Meters::new(Arc::clone(&self.name)),
            name: self.name,
            keys: self.keys,
            store: Store::new(self.entries, self.bytes, self.ttl),
            flights: Flights::new(),
            body_cap: self.body_cap,
            patience: self.patience,
            judged: self.judged,
            private: self.private,
            lifetimes: self.lifetimes,
            cookies: self.cookies,
            similar: self.similar,
        };
        Ok(Cache { scope: Arc::new(self.scope), core: Arc::new(core) })
    }

    fn check(&self) -> Result<(), ConfigError> {
        let error = |field, value: &dyn fmt::Display, expected: &str| {
            Err(ConfigError::new("Cache", field, value, expected))
        };
        if self.scoped == Scoped::No {
            return error("scope", &"none", "a function that names the tenant, or `shared_by_all`");
        }
        if self.scoped == Scoped::SharedByAll && self.private {
            return error("keep_private", &true, "false where all callers share the answers");
        }
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if self.name.is_empty() || !self.name.chars().all(is_token) {
            return error("name", &self.name, "letters, digits and no spaces");
        }
        for (field, time) in [("ttl", self.ttl), ("patience", self.patience)] {
            if time.is_zero() {
                return error(field, &"0 s", "more than zero");
            }
        }
        if self.entries == 0 {
            return error("entries", &0, "at least 1");
        }
        if self.bytes < 64 * 1024 {
            return error("bytes", &self.bytes, "at least 64 KiB");
        }
        if self.body_cap == 0 || self.body_cap > self.bytes / 4 {
            return error("body_cap", &self.body_cap, "1 to a quarter of `bytes`");
        }
        self.similar.as_ref().map_or(Ok(()), Similar::check)
    }

    fn with<G>(self, scope: G, scoped: Scoped) -> Builder<G> {
        Builder {
            scope,
            scoped,
            name: self.name,
            ttl: self.ttl,
            entries: self.entries,
            bytes: self.bytes,
            body_cap: self.body_cap,
            patience: self.patience,
            keys: self.keys,
            cookies: self.cookies,
            private: self.private,
            judged: self.judged,
            lifetimes: self.lifetimes,
            similar: self.similar,
        }
    }
}

impl<F> Cache<F> {
    /// How many answers there are.
    pub fn len(&self) -> usize {
        self.core.store.size().0
    }

    /// Whether there is no answer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes the answers count for.
    pub fn bytes(&self) -> usize {
        self.core.store.size().1
    }

    /// How many different requests are being asked for now.
    pub fn in_flight(&self) -> usize {
        self.core.flights.len()
    }

    /// Forgets all answers, such as when what they depend on has changed. Calls that run are kept when they end.
    pub fn clear(&self) {
        self.core.store.clear();
        if let Some(similar) = &self.core.similar {
            similar.clear();
        }
        self.core.meters.kept((0, 0));
    }

    fn key_of<Req: CacheRequest>(&self, request: &Req) -> Option<CacheKey>
    where
        F: Scope<Req>,
    {
        let mut key = self.core.keys.key(&self.scope.scope(request)?, request)?;
        // What was answered before was wrong.
        key.control.no_cache |= Call::is_marked(Mark::NoCache);
        Some(key)
    }
}

impl<F> Clone for Cache<F> {
    fn clone(&self) -> Self {
        Self { scope: Arc::clone(&self.scope), core: Arc::clone(&self.core) }
    }
}

impl<F> fmt::Debug for Cache<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("name", &self.core.name)
            .field("store", &self.core.store)
            .finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for Builder<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("ttl", &self.ttl)
            .field("entries", &self.entries)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// On the extensions of an answer that came from a [`CacheLayer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStatus {
    age: Duration,
    shared: bool,
}

impl CacheStatus {
    /// What a cache says of an answer; `None` where it was asked for.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// How old the answer is.
    #[must_use]
    pub const fn age(&self) -> Duration {
        self.age
    }

    /// Whether it is that of another call, which was running.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.shared
    }
}
