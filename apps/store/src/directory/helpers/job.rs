//! What helpers do, as they see it.

use std::fmt::Debug;

/// A job: it can be done on any thread.
pub(crate) trait Job: Debug + Send + Sized + 'static {
    /// The outcome of a job, for whoever waits for the job.
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
