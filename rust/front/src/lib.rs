//! The server in front: it accepts clients, reads their requests within bounds, has them decided, and sends the replies
//! that the relay makes. An exchange runs on the thread that accepted its connection, from the first byte to the last.
//!
//! | module | what |
//! | --- | --- |
//! | [`decisions`] | the queue between the engine threads and the one that decides |
//! | [`front`](Front) | the threads, the listeners, and requests that another ASGI server has read |
//! | `state`, `bounds`, `callers` | what all connections share: bounds, and who may call |
//! | `accept`, `connection`, `clock`, `socket`, `tcp`, `tls` | a client's connection, and what bounds it |
//! | `head`, `stream` | one request's head, and its stream over HTTP/2 |
//! | `service`, `endpoint`, `passthrough` | which way a request goes |
//! | `reading`, `room`, `asked`, `facts`, `arrival`, `report` | forwarding: read, decide, send, report |
//! | `carried`, `body` | the reply, polled by the connection that it goes to |
//! | `application` | everything else: the Unix socket of the Python application |
//! | `ready`, `notice` | replies that another ASGI server delivers, and the descriptor that wakes its event loop |
//! | `refusal` | errors that are answered without a decision from Python |
//!
//! Knows the relay and the core, and no Python.

#![warn(missing_docs)]

mod accept;
mod application;
mod arrival;
mod asked;
mod body;
mod bounds;
mod callers;
mod carried;
mod clock;
mod connection;
pub mod decisions;
mod endpoint;
mod facts;
mod front;
pub mod head;
mod notice;
mod paced;
mod passthrough;
mod reading;
mod ready;
mod refusal;
mod report;
mod room;
mod service;
mod socket;
mod state;
mod stream;
mod tcp;
mod tls;
mod upload;

pub use asked::AskedRequest;
pub use bounds::{Bounds, Limits, Pace};
pub use callers::{Callers, Digest, InForms, Presented, digest_of};
pub use endpoint::{Endpoint, Target};
pub use facts::{Facts, Wanted};
pub use front::{Front, Submission, Submitted};
pub use passthrough::{Goes, Passthrough, Passthroughs, Pattern};
pub use ready::{Readiness, Ready};
pub use tls::{TlsError, TlsFiles, server_config};
pub use upload::Uploaded;
