//! Running work on large texts on a thread of its own, so that the engine thread goes on moving bytes.

use std::panic::resume_unwind;

/// Work on more bytes than this is done on a thread of its own: an engine's other streams would wait for it. Scanning
/// and editing run at more than 1 GB/s, so that what stays costs a fraction of a millisecond.
pub const LARGE: usize = 256 * 1024;

/// Do `work` here, or, where it is `large`, on a thread that may take its time.
///
/// # Panics
/// Where `work` does.
pub async fn offload<T: Send + 'static>(
    large: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if !large {
        return Some(work());
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Some(done),
        Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
        // The runtime is going down, and this task with it.
        Err(_) => None,
    }
}
