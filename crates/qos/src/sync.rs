//! The atomics for all state that workers share: the processor's, or, with the feature `loom`,
//! those of a model checker that tries every interleaving.

#[cfg(not(feature = "loom"))]
pub(crate) use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
