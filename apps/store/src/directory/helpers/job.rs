//! What helpers do, as they see it.

use std::fmt::Debug;

/// A job: it can be done on any thread.
pub(crate) trait Job: Debug + Send + Sized + 'static {
    /// What a job returns when it is done. It is kept only if a Call waits for it.
    type Ended: Debug + Send;

    /// Does the job. Returns what became of it, if somebody waits for that.
    ///
    /// # Errors
    /// The job: there was no room for it, and it may be done once more.
    fn run(self, attempt: Attempt) -> Result<Option<Self::Ended>, Self>;

    /// Returns whether the job need not be done if no helper has begun it when the backend ends.
    fn is_dispensable(&self) -> bool;
}

/// Whether a job that finds no room is done once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Room is about to come.
    Repeatable,
    Last,
}
