//! Replays recorded runs and simulates programs. The core decides as in the pager; there is no real
//! memory and no real time.
//!
//! docs/trace.md describes what a recording holds.
#![forbid(unsafe_code)]

mod contents;
pub mod cost;
pub mod device;
mod event_source;
pub mod generate;
mod hash;
pub mod lru;
mod machine;
mod measure;
pub mod optimal;
pub mod price;
mod recorded;
mod replay;
mod sweep;
mod table_file;
mod working_set;
mod workload;
mod write;

pub use contents::{kind, Content, ContentId, Contents};
pub use event_source::{Batch, EventSource, Position, BATCH};
pub use machine::{BySource, Machine, Reached, Residents, Setup, Tally, Times};
pub use measure::{first_pass, footprint, FirstPass, Footprint};
pub use recorded::{Recorded, RecordedContents};
pub use replay::{replay, Replay, ReplayError};
pub use sweep::{counts, sweep, threads, Outcome};
pub use table_file::{Embedded, TableError};
pub use working_set::WorkingSet;
pub use workload::{Access, Event, Workload, UNKNOWN};
pub use write::Recorder;
