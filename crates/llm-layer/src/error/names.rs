//! What the codes and types of error bodies mean.

use failsoft_core::{Class, Limit, SoftKind};

/// What a code or type says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// This, whatever the status is.
    Surely(Class),
    /// This much; a status says it better, where there is one.
    Broadly(Class),
}

/// The meaning of a code or type; `None` for one that is not known. Case and separators do not matter.
pub(super) fn said(name: &str) -> Option<Said> {
    let find = |table: &[(Class, &[&str])]| {
        table.iter().find(|(_, names)| names.iter().any(|known| same(known, name))).map(|(class, _)| *class)
    };
    find(SURELY).map(Said::Surely).or_else(|| find(BROADLY).map(Said::Broadly))
}

/// Whether it is AWS's name for limits of every length.
pub(super) fn is_aws_throttle(name: &str) -> bool {
    same(name, "throttling_exception")
}

/// Whether it is Google's name for one model that is full.
pub(super) fn is_capacity_of_model(name: &str) -> bool {
    same(name, "model_capacity_exhausted")
}

fn same(a: &str, b: &str) -> bool {
    fn letters(text: &str) -> impl Iterator<Item = u8> {
        text.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase())
    }
    letters(a).eq(letters(b))
}

const SURELY: &[(Class, &[&str])] = &[
    (
        Class::Quota,
        &[
            "insufficient_quota",
            "credit_balance_exhausted",
            "organization_spend_limit_exceeded",
            "project_spend_limit_exceeded",
            "organization_usage_limit_exceeded",
            "billing_hard_limit_reached",
            "billing_not_active",
            "billing_error",
            "quota_exceeded",
            "exceeded_current_quota_error",
            "insufficient_balance",
            "insufficient_credits",
            "insufficient_user_quota",
            "payment_required",
            "billing_disabled",
            "service_quota_exceeded_exception",
        ],
    ),
    (
        Class::RateLimited,
        &[
            "rate_limit_exceeded",
            "rate_limited",
            "rate_limit_error",
            "rate_limit_reached_error",
            "rate_limit",
            "too_many_requests",
            "resource_exhausted",
            "throttling_exception",
            "throttled_exception",
            "too_many_requests_exception",
            "limit_exceeded_exception",
            "request_limit_exceeded",
            "provisioned_throughput_exceeded_exception",
            "throttled",
        ],
    ),
    (
        Class::Overloaded,
        &[
            "overloaded",
            "overloaded_error",
            "server_overloaded",
            "engine_overloaded",
            "engine_overloaded_error",
            "model_overloaded",
            "capacity_exceeded",
            "service_tier_capacity_exceeded",
            "no_capacity",
            "slow_down",
            "service_unavailable",
            "service_unavailable_error",
            "unavailable",
            "model_not_ready",
            "model_not_ready_exception",
            "model_capacity_exhausted",
            "service_unavailable_exception",
            "insufficient_system_resource",
        ],
    ),
    (
        Class::Auth,
        &[
            "invalid_api_key",
            "incorrect_api_key",
            "api_key_invalid",
            "missing_api_key",
            "expired_api_key",
            "authentication_error",
            "invalid_authentication",
            "invalid_authentication_error",
            "permission_error",
            "permission_denied",
            "permission_denied_error",
            "unauthenticated",
            "unauthorized",
            "access_denied",
            "account_deactivated",
            "invalid_organization",
            "mismatched_organization",
            "ip_not_authorized",
            "unsupported_country_region_territory",
            "api_key_service_blocked",
            "api_key_http_referrer_blocked",
            "api_key_ip_address_blocked",
            "access_token_expired",
            "access_token_scope_insufficient",
            "account_state_invalid",
            "service_disabled",
            "consumer_invalid",
            "iam_permission_denied",
            "access_denied_exception",
            "unrecognized_client_exception",
            "expired_token_exception",
            "expired_token",
            "invalid_signature_exception",
            "incomplete_signature",
            "incomplete_signature_exception",
            "missing_authentication_token",
            "missing_authentication_token_exception",
            "invalid_client_token_id",
            "not_authorized",
            "opt_in_required",
        ],
    ),
    (
        Class::ModelNotFound,
        &[
            "model_not_found",
            "deployment_not_found",
            "model_not_available",
            "model_decommissioned",
            "unknown_model",
            "no_such_model",
            "invalid_model",
            "resource_not_found_exception",
        ],
    ),
    (
        Class::ContextLength,
        &[
            "context_length_exceeded",
            "context_window_exceeded",
            "exceed_context_size_error",
            "tokens_limit_reached",
            "prompt_too_long",
        ],
    ),
    (
        Class::Refused,
        &[
            "content_filter",
            "content_policy_violation",
            "responsible_ai_policy_violation",
            "moderation_blocked",
            "data_inspection_failed",
        ],
    ),
    // Bedrock: the model behind it failed; the status is that of a failed dependency.
    (Class::Transient, &["model_error_exception", "model_stream_error_exception"]),
    // A model's failure that comes as a 400.
    (Class::Soft(SoftKind::ToolCall), &["tool_use_failed"]),
    (Class::Soft(SoftKind::Malformed), &["json_validate_failed"]),
    // The code says what is wrong with the request, so its text, which may repeat the request, is not asked.
    (
        Class::Invalid,
        &[
            "string_above_max_length",
            "string_below_min_length",
            "array_above_max_length",
            "array_below_min_length",
            "integer_above_max_value",
            "integer_below_min_value",
            "decimal_above_max_value",
            "decimal_below_min_value",
            "invalid_type",
            "invalid_value",
            "unknown_parameter",
            "unsupported_parameter",
            "unsupported_value",
            "missing_required_parameter",
            "invalid_json",
            "invalid_function_parameters",
        ],
    ),
];

const BROADLY: &[(Class, &[&str])] = &[
    (
        Class::Invalid,
        &[
            "invalid_request_error",
            "invalid_request",
            "invalid_argument",
            "bad_request",
            "bad_request_error",
            "validation_error",
            "validation_exception",
            "failed_precondition",
            "out_of_range",
        ],
    ),
    (Class::ModelNotFound, &["not_found", "not_found_error"]),
    (
        Class::Timeout(Limit::Total),
        &["timeout", "timeout_error", "request_timeout", "deadline_exceeded", "model_timeout_exception"],
    ),
    (
        Class::Transient,
        &[
            "server_error",
            "internal_server_error",
            "internal_error",
            "internal",
            "api_error",
            "service_error",
            "upstream_error",
            "provider_error",
            "unknown_error",
            "internal_server_exception",
            "internal_failure",
            "internal_failure_exception",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_and_separators_do_not_matter() {
        for name in ["DeploymentNotFound", "deployment_not_found", "deployment-not-found"] {
            assert_eq!(said(name), Some(Said::Surely(Class::ModelNotFound)), "{name}");
        }
        assert_eq!(said("BadRequestError"), Some(Said::Broadly(Class::Invalid)));
        for unknown in ["", "_", "3051", "é"] {
            assert_eq!(said(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn no_name_stands_in_two_rows() {
        let all: Vec<&str> =
            SURELY.iter().chain(BROADLY).flat_map(|(_, names)| names.iter().copied()).collect();
        for (i, name) in all.iter().enumerate() {
            assert!(!all[..i].iter().any(|earlier| same(earlier, name)), "{name}");
        }
    }
}
