//! Server-sent events: a stream of bytes split into events, in two views of the same split.
//!
//! * *Slices*, for forwarding: [`Splitter`](splitter::Splitter) hands out the whole events of each read as one slice of
//!   it. Nothing is copied but an event that spans reads, and what lies inside is not looked at.
//! * *Events*, for reading: [`Events`](event::Events) goes over such a slice, and each [`RawEvent`](event::RawEvent)
//!   knows its data, its name and its place in the slice. [`Interpreter`](event::Interpreter) adds what outlives an
//!   event.
//!
//! A part that wants few of the events need not walk over all of them: it searches the slice and asks
//! [`event_around`](boundary::event_around) a hit.
//!
//! ```
//! use bytes::Bytes;
//! use sluicegate_core::limits::Limits;
//! use sluicegate_core::sse::boundary::event_around;
//! use sluicegate_core::sse::event::RawEvent;
//! use sluicegate_core::sse::splitter::Splitter;
//!
//! let mut splitter = Splitter::new(&Limits::default());
//! let mut forwarded = Vec::new();
//! for read in [&b"data: {\"a\":1}\n\ndata: {\"us"[..], b"age\":2}\n\n: ping\n\ndata: [DO"] {
//!     let (batch, fed) = splitter.feed(Bytes::from_static(read));
//!     fed.unwrap();
//!     for slice in batch.slices() {
//!         if let Some(hit) = memchr::memmem::find(slice, b"\"usage\"") {
//!             let event = RawEvent::parse(&slice[event_around(slice, hit).unwrap()]);
//!             assert_eq!(&*event.data().unwrap(), b"{\"usage\":2}");
//!         }
//!         forwarded.extend_from_slice(slice);
//!     }
//! }
//! let tail = splitter.finish().unwrap();
//! assert_eq!((&tail.rest[..], tail.terminator), (&b"data: [DO"[..], &b"\n\n"[..]));
//! assert_eq!(forwarded, b"data: {\"a\":1}\n\ndata: {\"usage\":2}\n\n: ping\n\n");
//! ```
//!
//! The rules are those of WHATWG HTML, section 9.2, with one addition: a stream that ends inside an event may still
//! have it read, since servers leave out the last blank line (`apogee#139`).

pub mod boundary;
pub mod encode;
pub mod event;
pub mod line;
pub mod splitter;
