//! Exactly-once commits of a topic's rows to its table.
//!
//! | step | what is durable after it |
//! |---|---|
//! | 1 | the *plan*, writing: epoch, table uuid, the start of each partition, the folder of its data files |
//! | 2 | the data files |
//! | 3 | the plan, committing: the files, `[start, end)` of each partition, the snapshot id to be, the base snapshot |
//! | 4 | the manifest and the manifest list |
//! | 5 | the commit: conditional on table uuid and base snapshot, carrying the [`Marker`] in the summary and in a property |
//! | 6 | nothing new: the marker is read back from where it is stored |
//! | 7 | the plan is gone |
//!
//! A crash between any two of them leaves a plan, and [`Committer::settle`] finds out what became of it before another is
//! made: a writing plan was never committed; a committing one was if its snapshot or its marker is in the table, was not if
//! the table moved on without it, and is committed again, the same, if neither is known. Files are deleted only once it is
//! proven that no snapshot names them.

mod committer;
mod expire;
mod marker;
pub(crate) mod plan;
pub(crate) mod snapshot;

pub use committer::{Committer, Pending, Poured};
pub use marker::Marker;
pub use plan::{Plan, PlanPhase, PlannedRange};
