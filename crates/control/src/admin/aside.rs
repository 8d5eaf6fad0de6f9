//! Work that waits, for workers, a disk or a lock, beside the thread that answers.

use super::problem::{Code, Problem};

/// Does what waits where it holds up nobody.
///
/// # Errors
/// Its own, and that it panicked.
pub(super) async fn aside<T: Send + 'static, E: Into<Problem> + Send + 'static>(
    what: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(what).await;
    let done = done.map_err(|_| Problem::new(Code::Internal, "the server's log says more"))?;
    done.map_err(Into::into)
}
