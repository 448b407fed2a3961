//! The contract that every layer passes, and the services that check it.
//!
//! A layer joins with a line:
//!
//! ```
//! # mod passing {
//! contract::contract! {
//!     map_err => |_inner| tower::util::MapErrLayer::new(failsoft_core::BoxError::from)
//! }
//! # }
//! ```
//!
//! `_inner` is a clone of the service that the layer is put around, for layers that take further routes. The
//! expression is evaluated for each kind of inner service, so it must not name its type.

#![allow(clippy::expect_used, reason = "a broken contract ends the test")]

mod checks;
mod probe;
mod server;

pub use self::{
    checks::*,
    probe::{ANSWER, Probe, ProbeBody, ProbeFuture, Reply, Request, request},
    server::{Server, serve},
};

/// Instantiates every check of the contract for one layer, as a module of tests.
#[macro_export]
macro_rules! contract {
    ($name:ident => |$inner:ident| $layer:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            /// The layer around an inner service.
            macro_rules! around {
                ($service:expr) => {{
                    let $inner = $service;
                    let layer = {
                        #[allow(clippy::redundant_clone)]
                        let $inner = $inner.clone();
                        let _ = &$inner;
                        $layer
                    };
                    (layer, $inner)
                }};
            }

            #[tokio::test(start_paused = true)]
            async fn calls_the_readied_inner_once_and_only_when_ready() {
                let probe = $crate::Probe::new();
                let (layer, inner) = around!(probe.clone());
                $crate::readiness(layer, inner, &probe).await;
            }

            #[tokio::test(start_paused = true)]
            async fn a_clone_made_after_ready_carries_no_readiness() {
                let probe = $crate::Probe::new();
                let (layer, inner) = around!(probe.clone());
                $crate::clone_after_ready(layer, inner, &probe).await;
            }

            #[tokio::test(start_paused = true)]
            async fn readiness_that_is_never_used_is_given_back_when_the_service_drops() {
                let probe = $crate::Probe::new();
                let (layer, inner) = around!($crate::one_at_a_time(&probe));
                $crate::ready_then_dropped(layer, inner).await;
            }

            #[tokio::test(start_paused = true)]
            async fn dropped_at_any_point_it_leaves_nothing_behind() {
                for reply in $crate::Reply::ALL {
                    for polls in 0.. {
                        let probe = $crate::Probe::replying(reply);
                        let (layer, inner) = around!($crate::one_at_a_time(&probe));
                        if $crate::dropped_after(polls, layer, inner, &probe).await.is_break() {
                            break;
                        }
                    }
                }
            }

            #[tokio::test(start_paused = true)]
            async fn a_slow_body_arrives_byte_for_byte() {
                let probe = $crate::Probe::new();
                let (layer, inner) = around!(probe.clone());
                $crate::slow_body(layer, inner, &probe).await;
            }

            #[tokio::test(start_paused = true)]
            async fn works_inside_and_outside_a_buffer() {
                let probe = $crate::Probe::new();
                let (layer, inner) = around!(probe.clone());
                $crate::buffer_outside(layer, inner, &probe).await;
                let probe = $crate::Probe::new();
                let (layer, inner) = around!($crate::buffered(&probe));
                $crate::buffer_inside(layer, inner, &probe).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn around_reqwest_a_slow_body_arrives_with_its_url_and_a_dropped_one_closes_the_socket() {
                let server = $crate::serve().await;
                let (layer, inner) = around!(reqwest::Client::new());
                $crate::reqwest_bodies(layer, inner, &server).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_an_axum_router_it_can_be_layered() {
                let (layer, _) = around!($crate::any_route());
                $crate::axum_router(layer).await;
            }

            #[test]
            fn around_a_real_client_it_is_clone_send_and_sync() {
                let (layer, inner) = around!(reqwest::Client::new());
                $crate::auto_traits(layer, inner);
            }
        }
    };
}
