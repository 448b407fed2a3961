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
    fallback => |inner| fallback_layer::FallbackLayer::builder()
        .route(fallback_layer::Route::new("backup", inner))
        .replay(failsoft_core::Once)
        .build()
        .unwrap()
}
