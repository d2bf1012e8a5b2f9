//! Changes that go on when whoever asked for them does not.

use backstop_core::port::StoreError;
use tokio::task::JoinError;

/// Does a change to its end, also when whoever asked for it leaves in the middle or has waited too
/// long.
pub(crate) fn run_detached<T: Send + 'static, E: From<StoreError> + Send + 'static>(
    change: impl Future<Output = Result<T, E>> + Send + 'static,
) -> impl Future<Output = Result<T, E>> {
    let task = tokio::spawn(change);
    async move { join_detached(task.await) }
}

/// What a task answered; a panic in it goes on here.
pub(crate) fn join_detached<T, E: From<StoreError>>(
    task: Result<Result<T, E>, JoinError>,
) -> Result<T, E> {
    task.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // Tasks of requests are cancelled only with the whole server.
        Err(_) => Err(StoreError::unavailable("answering", "the server is going down").into()),
    })
}
