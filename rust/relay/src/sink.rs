//! What the relay asks of the side that owns the client: a place for frames, and decisions.

use std::task::{Context, Poll};

use bytes::Bytes;
use sluicegate_core::usage::Usage;

use crate::fault::Fault;
use crate::upstream::Route;

/// Header names and values, as they go on the wire.
pub type HeaderList = Vec<(Bytes, Bytes)>;

/// Where the frames of one reply go. No method blocks; all run on the relay's thread.
pub trait Sink: Send + Sync + 'static {
    /// Begin the reply. Called once, before any frame.
    fn start(&mut self, status: u16, headers: HeaderList);

    /// Take `frames` (leaving it empty). They leave together, at the latest before the relay's thread parks.
    fn push(&mut self, frames: &mut Vec<Bytes>);

    /// No more frames follow.
    fn end(&mut self);

    /// The reply cannot be completed: the client must see its connection cut, not a regular end.
    fn abort(&mut self);

    /// Ready while the bytes not yet taken by the server are below the client buffer bound: the pump reads on only then.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready once the server has taken everything, or never will.
    fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// A reply made by the gateway itself.
#[derive(Debug, Clone)]
pub struct ErrorReply {
    /// HTTP status.
    pub status: u16,
    /// Headers; the length is set by the server.
    pub headers: HeaderList,
    /// Body.
    pub body: Bytes,
}

/// What to do after an attempt failed with nothing sent to the client.
#[derive(Debug)]
pub enum Next {
    /// Try this one.
    Route(Route),
    /// Give up, with this reply.
    Reply(ErrorReply),
}

/// Decisions that are not the relay's. Called on the relay's thread; must not block.
pub trait Director: Send + Sync + 'static {
    /// JSON members for the usage object (no braces), or `None` to leave it as it is.
    fn price(&mut self, usage: &Usage) -> Option<Bytes>;

    /// An attempt failed before anything reached the client.
    fn failed(&mut self, fault: &Fault) -> Next;
}
