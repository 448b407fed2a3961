//! The atomics and the lock, swapped for loom's under `--cfg failsoft_loom`.

#[cfg(failsoft_loom)]
pub(super) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};
#[cfg(not(failsoft_loom))]
pub(super) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};
