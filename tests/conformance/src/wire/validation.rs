//! What a `validate-layer` says of an answer that was good to the reader of its format.

use std::{
    convert::Infallible,
    pin::pin,
    task::Poll,
    task::{Context, Waker},
};

use bytes::Bytes;
use failsoft_core::{Insight, Verdict};
use http::Response;
use http_body_util::Full;
use tower::{Layer as _, ServiceExt as _, service_fn};
use validate_layer::ValidateLayer;

use super::{
    Said,
    request::{Asked, Validation},
};

/// The answer as it comes out of a layer around. One that has failed before does not get so far, but where loops are looked for:
/// those run into the limit of tokens.
pub(crate) fn behind(said: Said, asked: &Asked) -> Result<Said, String> {
    if !said.verdict.is_success() && !matches!(asked.validation(), Some(Validation::Repetition)) {
        return Ok(said);
    }
    let builder = ValidateLayer::builder();
    let builder = match asked.validation() {
        None | Some(Validation::Repetition) => builder,
        Some(Validation::Refusals) => builder.refusals(),
        Some(Validation::Schema(schema)) => builder.schema(schema),
    };
    let layer = builder.build().map_err(|problem| problem.to_string())?;
    let insight = Insight::new();
    insight.learn(|facts| {
        *facts = said.facts;
        facts.verdict = Some(said.verdict);
    });
    let mut response = Response::new(Full::<Bytes>::from("{}"));
    response.extensions_mut().insert(insight.clone());
    let mut response = Some(response);
    let reader = service_fn(move |()| {
        let response = response.take().unwrap_or_default();
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let call = pin!(layer.layer(reader).oneshot(()));
    // Nothing in it has to wait.
    let Poll::Ready(outcome) = call.poll(&mut Context::from_waker(Waker::noop())) else {
        return Err("the layer waits for something".to_owned());
    };
    let verdict = match &outcome {
        Ok(_) => insight.verdict().unwrap_or(Verdict::SUCCESS),
        Err(error) => Verdict::of_error(&**error),
    };
    let mut facts = insight.facts();
    facts.inside_success = !verdict.is_success();
    Ok(Said { verdict, facts })
}
