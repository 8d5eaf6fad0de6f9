//! A warning in the answer to a change that is lost when the server ends.
//!
//! Without a state file, added namespaces and devices are forgotten at the end of the server, and
//! later ones reuse their blocks. A caller that has just placed data must know that.

use axum::http::{HeaderName, HeaderValue};

/// The header of an answer with the warning.
pub(super) const WARNING: HeaderName = HeaderName::from_static("nearflash-warning");

/// Returns the header that warns that the change is not stored.
pub(super) fn not_kept() -> [(HeaderName, HeaderValue); 1] {
    let text = "this server keeps no changes: when it ends, this change is lost, and with it the \
                way to data stored through it; start the server with --state FILE";
    [(WARNING, HeaderValue::from_static(text))]
}
