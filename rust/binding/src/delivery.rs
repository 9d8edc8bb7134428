//! Which replies have something for their server. They are served together, in one hold of the GIL, when the relay's thread has
//! nothing else to do: what became ready in one turn of the reactor leaves as one frame a reply, and what is alone leaves at once.

use std::cell::RefCell;
use std::sync::Arc;

use pyo3::Python;

use crate::asgi::Outlet;

/// Replies that may wait for the thread to park. A reactor that never idles (all streams at full speed) is served this often.
const MAX_READY: usize = 256;

thread_local! {
    static READY: RefCell<Vec<Arc<Outlet>>> = const { RefCell::new(Vec::new()) };
}

/// Note that `outlet` has something to deliver. On the relay's thread only.
pub(crate) fn ready(outlet: &Arc<Outlet>) {
    let full = READY.with_borrow_mut(|ready| {
        ready.push(Arc::clone(outlet));
        ready.len() >= MAX_READY
    });
    if full {
        deliver_ready();
    }
}

/// Deliver what is ready.
pub(crate) fn deliver_ready() {
    let outlets = READY.take();
    if outlets.is_empty() {
        return;
    }
    // None: the interpreter is going down, and the server with it.
    let _ = Python::try_attach(|py| {
        for outlet in &outlets {
            outlet.deliver(py);
        }
    });
}
