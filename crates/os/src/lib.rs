//! The system call layer of memfit: system calls with their errnos translated.

pub mod capability;
pub mod event;
pub mod exec;
pub mod files;
pub mod inject;
pub mod lease;
pub mod limits;
pub mod maps;
pub mod memory;
pub mod messages;
pub mod probe;
pub mod process;
pub mod procfs;
pub mod proctree;
pub mod program;
pub mod sched;
pub mod seqpacket;
pub mod signal_probe;
pub mod standby;
pub mod transfer;
pub mod uffd;
pub mod unevictable;
