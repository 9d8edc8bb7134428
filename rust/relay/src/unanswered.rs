//! Why a request got no reply, and whether it may be sent a second time.

use std::error::Error as StdError;
use std::io;

use crate::connect::{ConnectTimeout, Uses};
use crate::fault::FaultKind;
use crate::reason::Reason;

pub(crate) type Cause<'a> = &'a (dyn StdError + 'static);

/// A request that got no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendError {
    pub(crate) kind: FaultKind,
    /// Where the kind does not tell.
    pub(crate) reason: Option<Reason>,
    /// The upstream cannot have worked on the request, or its connection died while it was idle: then it is the
    /// connection's fault, and another one may serve.
    pub(crate) repeatable: bool,
}

impl SendError {
    /// No connection came to be.
    pub(crate) fn connecting(error: Cause<'_>) -> Self {
        // One address of several may have used up its share of the deadline, or all of them all of it.
        let late = causes(error).any(|cause| {
            cause.is::<ConnectTimeout>()
                || cause
                    .downcast_ref::<io::Error>()
                    .is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
        });
        Self {
            kind: if late {
                FaultKind::ConnectTimeout
            } else {
                FaultKind::Connect
            },
            reason: (!late).then(|| Reason::of(causes(error))),
            repeatable: false,
        }
    }

    /// No reply for a reason of the exchange's, not of its connection's.
    pub(crate) fn of(kind: FaultKind) -> Self {
        Self {
            kind,
            reason: None,
            repeatable: false,
        }
    }

    /// The request was sent, or was about to be, over a connection with these uses.
    pub(crate) fn sending(error: &hyper::Error, uses: &Uses) -> Self {
        let garbled = causes(error).any(|cause| {
            cause
                .downcast_ref::<hyper::Error>()
                .is_some_and(hyper::Error::is_parse)
        });
        Self {
            kind: if garbled {
                FaultKind::Protocol
            } else {
                FaultKind::Reset
            },
            reason: (!garbled).then(|| Reason::of(causes(error))),
            repeatable: may_be_repeated(error, uses),
        }
    }
}

/// The causes of an error, itself first.
fn causes(error: Cause<'_>) -> impl Iterator<Item = Cause<'_>> {
    fn deeper<'a>(cause: &Cause<'a>) -> Option<Cause<'a>> {
        (*cause).source()
    }
    std::iter::successors(Some(error), deeper)
}

fn may_be_repeated(error: &hyper::Error, uses: &Uses) -> bool {
    if let Some(error) = causes(error).find_map(|cause| cause.downcast_ref::<h2::Error>()) {
        // RFC 9113, section 6.8: streams above the last one that the GOAWAY names were not and will not be processed;
        // only those end with it. Section 8.7: nor was one that is refused.
        if error.is_go_away() {
            return error.is_remote();
        }
        if error.is_reset() {
            return error.reason() == Some(h2::Reason::REFUSED_STREAM);
        }
    }
    uses.went_stale()
}
