//! Every layer passes the contract.

contract::contract! {
    nothing_but_a_boxed_error => |_inner| tower::util::MapErrLayer::new(failsoft_core::BoxError::from)
}
