//! In-band authentication with DH-HMAC-CHAP (Base 8.13): a host proves that it has its key; the
//! controller, if the host asks, proves that it has its own.
//!
//! This module has the arithmetic that both ends need: [`Secret`]s, [`enum@Hash`]es, [`Group`]s,
//! and the responses made of them. The controller's side is `transaction`, the host's is
//! [`HostAuthentication`].
//!
//! Deliberately left out: unpredictable bytes, which are arguments, and threads. Exponentiations in
//! large groups take some milliseconds each, and a [`ModularPower`] lets the caller choose who
//! computes them.

mod group;
mod hash;
mod host;
mod methods;
mod response;
mod secret;
pub(super) mod transaction;

pub use group::{EXPONENT_BYTES, Group, ModularPower};
pub use hash::Hash;
pub use host::{Credentials, HostAuthentication, HostReaction, PROOF_CHANCE_BYTES, ProofFailure};
pub use methods::Methods;
pub use response::{Responder, Response, augmented};
pub use secret::{Secret, SecretError};
