//! In-band authentication with DH-HMAC-CHAP (Base 8.13): a host proves that it has its key, and the
//! controller, if the host asks, that it has its own.
//!
//! The arithmetic is here as far as both ends need it: [`Secret`]s, [`enum@Hash`]es, [`Group`]s and the
//! responses made of them. What the controller does with it is in `transaction`.
//!
//! What is deliberately not here: chance, which comes in as an argument, and threads for the powers
//! of large groups (some milliseconds each), which a [`Power`] lets others compute.

mod group;
mod hash;
mod host;
mod methods;
mod response;
mod secret;
pub(super) mod transaction;

pub use group::{EXPONENT_BYTES, Group, Power};
pub use hash::Hash;
pub use host::{Answer, Credentials, PROOF_CHANCE_BYTES, Proof, ProofFailure};
pub use methods::Methods;
pub use response::{End, Response, augmented};
pub use secret::{Secret, SecretError};
