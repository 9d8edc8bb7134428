//! The server in front: it accepts clients, reads their requests within bounds, has them decided, and sends the replies that the relay
//! makes. An exchange runs on the thread that accepted its connection, from the first byte to the last.
//!
//! | module | what |
//! | --- | --- |
//! | [`decisions`] | the queue between the engine threads and the one that decides |
//! | [`front`](Front) | the threads, the listeners, the settings |
//! | `accept`, `connection`, `clock`, `socket`, `tls` | a client's connection and what bounds it |
//! | `stream` | the same for one request of an HTTP/2 connection |
//! | [`head`] | what is read of a request's head here and not by hyper |
//! | `service` | which way a request goes |
//! | `arrival` | a request that goes to an upstream: read, decided, made an exchange |
//! | `carried`, `body` | the reply, polled by the connection that it goes to |
//! | `application` | everything else: the Unix socket of the Python application |
//! | `ready`, `notice` | replies without a connection of ours, and how an event loop hears of them |
//! | `refusal` | errors that are answered without asking anybody |
//!
//! Knows the relay and the core, and no Python.

#![warn(missing_docs)]

mod accept;
mod application;
mod arrival;
mod body;
mod callers;
mod carried;
mod clock;
mod connection;
pub mod decisions;
mod endpoint;
mod front;
pub mod head;
mod notice;
mod reading;
mod ready;
mod refusal;
mod report;
mod service;
mod socket;
mod stream;
mod tls;

pub use arrival::AskedRequest;
pub use callers::{Callers, Digest, digest_of};
pub use endpoint::Endpoint;
pub use front::{Bounds, Front, Limits, Submission, Submitted};
pub use ready::{Readiness, Ready};
pub use tls::{TlsError, TlsFiles, server_config};
