//! The byte path of sluicegate: bytes in, bytes out, no I/O.
//!
//! The bytes of a reply are recognised as an event stream, JSON or neither, split into events or documents, and handed
//! on as slices of what was read wherever nothing has to change. No clock, no environment, no files, no log.

pub mod api;
mod base64;
pub mod cost;
pub mod error;
pub mod form;
pub mod harmony;
pub mod input;
pub mod json;
pub mod limits;
pub mod meter;
pub mod mode;
pub mod output;
pub mod pipeline;
pub mod pricing;
pub mod protocol;
pub mod protocols;
pub mod record;
pub mod rendezvous;
pub mod request;
pub mod sse;
pub mod usage;
pub mod watch;
