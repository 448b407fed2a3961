//! What the cases in `cases/` are made of: the crates under their names, and an expression of which one side is the mistake.
//!
//! A case is compiled twice by `tests/all/mistakes.rs`. As it stands, each line with a comment `//~ text` must have an error that
//! says `text`, and no other line may have one; several texts on a line must all be said. With `--cfg mended` it must
//! compile: so what the texts tell to do is known to help. Only our own words stand there, for those of rustc change;
//! of a type of ours the last part of its name without what is before, for the compiler says where it lies as soon as there is
//! another of that name.

pub use {
    axum, breaker_layer, budget_layer, bytes, failsoft, failsoft_core, fallback_layer, http, http_body,
    http_body_util, llm_layer, reqwest, retry_layer, stream_layer, tokio, tower, validate_layer,
};

/// Wants a service, as routers, boxes and `ServiceExt::<Request>::ready` do.
pub fn takes<Req>(_: impl tower::Service<Req>) {}

/// The mistake, or what mends it.
#[macro_export]
macro_rules! either {
    ($mistake:expr, mended: $mended:expr) => {{
        #[cfg(not(mended))]
        let chosen = $mistake;
        #[cfg(mended)]
        let chosen = $mended;
        chosen
    }};
}
