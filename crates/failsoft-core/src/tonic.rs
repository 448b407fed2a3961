//! tonic 0.14: what a [`Status`] means, and a fault as a [`Status`].
//!
//! Put [`to_status`] where a service of ours becomes a tonic client's or server's: without it tonic calls every
//! foreign error `Unknown`.
//!
//! ```
//! use failsoft_core::{Class, Denier, Fault, to_status};
//!
//! let fault = Fault::new(Class::Denied(Denier::Circuit), "breaker-layer").with_target("greeter");
//! let status = to_status(fault.into());
//! assert_eq!(status.code(), tonic::Code::Unavailable);
//! // The fault is still there for whoever looks.
//! assert_eq!(Fault::find(&status).and_then(|fault| fault.target()), Some("greeter"));
//! ```

use std::{error::Error, sync::Arc};

use tonic::{
    Code, Status,
    metadata::{MetadataMap, MetadataValue},
};

use crate::{BoxError, Class, Denier, Fault, Verdict, grpc};

/// What a status means, with the advice in its metadata and details.
pub(crate) fn verdict_of_status(status: &Status) -> Verdict {
    let verdict = Verdict::of(grpc::class_of_grpc_code(u32::try_from(i32::from(status.code())).unwrap_or(2)));
    let headers = status.metadata().clone().into_headers();
    match crate::advice::grpc_pushback(&headers) {
        Some(crate::advice::Pushback::After(after)) => verdict.with_retry_after(after),
        Some(crate::advice::Pushback::Stop) => verdict.with_hint(crate::Hint::Never),
        None => verdict.with_advice(grpc::retry_delay(status.details())),
    }
}

/// An error as a status. A status in the chain is that status; a [`Fault`] has the code of its class, its advice as
/// `grpc-retry-pushback-ms` (−1, which forbids retrying, for our own denials without advice) and itself as the source;
/// another error has the code of what [`Verdict::of_error`] knows of it.
#[must_use]
pub fn to_status(err: BoxError) -> Status {
    let err = match err.downcast::<Status>() {
        Ok(status) => return *status,
        Err(err) => err,
    };
    let verdict = Verdict::of_error(&*err);
    let message = match Fault::find(&*err) {
        Some(_) => err.to_string(),
        // What a foreign error says may not be meant for clients.
        None => verdict.class().to_string(),
    };
    let mut metadata = MetadataMap::new();
    let pushback = match verdict.retry_after() {
        Some(after) => Some(i64::try_from(after.as_millis()).unwrap_or(i64::MAX).min(i32::MAX.into())),
        None => verdict.class().is_denied().then_some(-1),
    };
    if let Some(pushback) = pushback {
        metadata.insert("grpc-retry-pushback-ms", MetadataValue::from(pushback));
    }
    let mut status = Status::with_metadata(code_of(verdict.class()), message, metadata);
    let source: Arc<dyn Error + Send + Sync> = Arc::from(err);
    status.set_source(source);
    status
}

const fn code_of(class: Class) -> Code {
    match class {
        Class::Success => Code::Ok,
        Class::Transient | Class::Overloaded | Class::Denied(Denier::Circuit | Denier::Quarantine) => {
            Code::Unavailable
        }
        Class::Timeout(_) => Code::DeadlineExceeded,
        Class::RateLimited | Class::Quota | Class::Denied(Denier::Budget) => Code::ResourceExhausted,
        Class::Denied(Denier::Loop) => Code::Aborted,
        Class::Denied(Denier::Rail) => Code::PermissionDenied,
        Class::ContextLength | Class::Invalid => Code::InvalidArgument,
        Class::Refused => Code::FailedPrecondition,
        Class::Soft(_) => Code::DataLoss,
        Class::Cancelled => Code::Cancelled,
        Class::Auth | Class::ModelNotFound => Code::Internal,
        Class::Unknown => Code::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Limit;

    #[test]
    fn a_status_survives_and_is_classified() {
        let status = to_status(Status::new(Code::ResourceExhausted, "slow down").into());
        assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "slow down"));
        assert_eq!(Verdict::of_error(&status).class(), Class::RateLimited);
    }

    #[test]
    fn a_fault_keeps_its_advice_and_is_found_through_the_status() {
        let fault = Fault::new(Class::Overloaded, "x").with_retry_after(Duration::from_millis(1200));
        let status = to_status(fault.into());
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "1200");
        let verdict = Verdict::of_error(&status);
        assert_eq!(
            (verdict.class(), verdict.retry_after()),
            (Class::Overloaded, Some(Duration::from_millis(1200)))
        );
    }

    #[test]
    fn our_own_denial_forbids_retrying_and_a_foreign_error_keeps_its_text_back() {
        let denied = to_status(Fault::new(Class::Denied(Denier::Budget), "x").into());
        assert_eq!(denied.metadata().get("grpc-retry-pushback-ms").unwrap(), "-1");
        let foreign = to_status(std::io::Error::new(std::io::ErrorKind::TimedOut, "secret host").into());
        assert_eq!(foreign.code(), Code::DeadlineExceeded);
        assert!(!foreign.message().contains("secret"));
        assert_eq!(Verdict::of_error(&foreign).class(), Class::Timeout(Limit::Total));
    }
}
