//! Every layer passes the contract.

contract::contract! {
    nothing_but_a_boxed_error => |_inner| tower::util::MapErrLayer::new(failsoft_core::BoxError::from)
}

contract::contract! {
    // A router's requests have streaming bodies, which can be sent once.
    retry => |_inner| retry_layer::RetryLayer::builder()
        .deadline(std::time::Duration::from_secs(60))
        .attempt_timeout(std::time::Duration::from_secs(20))
        .replay(failsoft_core::Once)
        .build()
        .unwrap()
}

contract::contract! {
    hedge => |_inner| retry_layer::HedgeLayer::builder()
        .delay(std::time::Duration::from_secs(60))
        .replay(failsoft_core::Once)
        .build()
        .unwrap()
}

contract::contract! {
    reflect => |_inner| retry_layer::ReflectLayer::builder(retry_layer::reflect::reask_fn(|_, _| None))
        .replay(failsoft_core::Once)
        .build()
        .unwrap()
}

contract::contract! {
    validate => |_inner| validate_layer::ValidateLayer::builder()
        .json_object()
        .require("/choices/0/message/content")
        .build()
        .unwrap()
}

contract::contract! {
    llm => |_inner| llm_layer::LlmLayer::new(llm_layer::Provider::OpenAiCompatible)
}

contract::contract! {
    llm_held_to_the_end => |_inner| llm_layer::LlmLayer::builder().hold_to_end(1 << 20).build().unwrap()
}

contract::contract! {
    fallback => |inner| fallback_layer::FallbackLayer::builder()
        .replay(failsoft_core::Once)
        .route(fallback_layer::Route::new("second", inner))
        .build()
        .unwrap()
}

contract::contract! {
    // In the order that the README recommends.
    the_whole_stack => |_inner| tower::ServiceBuilder::new()
        .layer(retry_layer::RetryLayer::builder().replay(failsoft_core::Once).build().unwrap())
        .layer(breaker_layer::BreakerLayer::builder().build().unwrap())
        .layer(validate_layer::ValidateLayer::builder().json_object().build().unwrap())
        .layer(llm_layer::LlmLayer::new(llm_layer::Provider::OpenAiCompatible))
        .layer(stream_layer::StreamLayer::new(stream_layer::AnyContent))
        .into_inner()
}

contract::contract! {
    stream => |_inner| stream_layer::StreamLayer::new(stream_layer::AnyContent)
}

contract::contract! {
    stream_held_to_the_end => |_inner| stream_layer::StreamLayer::builder(stream_layer::AnyContent)
        .hold_to_end(1 << 20)
        .build()
        .unwrap()
}
