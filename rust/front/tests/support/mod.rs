//! A front that anybody may call, on a free port, with bounds that no test here comes near.

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_front::decisions::Decisions;
use sluicegate_front::{Bounds, Callers, Front, Limits, Pace};
use sluicegate_relay::{Copies, DrainLimits};

/// How long anything is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A front with one engine, and the address that it listens on. There is no application behind it.
pub(crate) fn listening(decisions: &Arc<Decisions>, http2: bool) -> (Front, SocketAddr) {
    let limits = Limits {
        max_body: 1 << 20,
        all_bodies: 1 << 30,
        hold_upload: 64 << 10,
        max_event: 1 << 20,
        max_reply: 1 << 20,
        client_buffer: 1 << 20,
        keepalive: None,
        client_stall: None,
        drain: DrainLimits {
            time: PATIENCE,
            bytes: 0,
            replies: 0,
        },
        max_requests: 100,
        copies: Copies::new(1 << 20),
    };
    let front = Front::start(1, limits, Arc::clone(decisions)).unwrap();
    front.set_callers(Callers {
        digests: None,
        ..Callers::nobody()
    });
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let bounds = Bounds {
        head_bytes: 1 << 16,
        headers: 100,
        url_bytes: 1 << 14,
        head_time: PATIENCE,
        body_pace: Pace {
            pause: PATIENCE,
            rate: NonZeroU32::MIN,
        },
        idle: PATIENCE,
        stall: None,
        connections: 100,
        http2_streams: 100,
        http2_resets: 100,
    };
    let nowhere = PathBuf::from("/nowhere");
    front.listen(address, nowhere, http2, None, bounds).unwrap();
    (front, address)
}
