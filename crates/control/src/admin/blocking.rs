//! Blocking work (for workers, a disk or a lock) outside the thread that answers requests.

use super::problem::{Code, Problem};

/// Runs blocking work on a thread of its own.
///
/// # Errors
/// Fails with the error of the work, or a [`Problem`] if it panicked.
pub(super) async fn blocking<T: Send + 'static, E: Into<Problem> + Send + 'static>(
    what: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(what).await;
    let done = done.map_err(|_| Problem::new(Code::Internal, "the server's log says more"))?;
    done.map_err(Into::into)
}
