//! The byte path of sluicegate: bytes in, bytes out, no I/O.

pub mod json;
