//! Bytes that say when they are let go of.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;

use super::PATIENCE;

/// Bytes of a request that say when nobody holds them any more.
pub(crate) struct Tracked {
    data: Vec<u8>,
    freed: Arc<AtomicBool>,
    tell: Sender<()>,
}

impl AsRef<[u8]> for Tracked {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.freed.store(true, Ordering::SeqCst);
        let _ = self.tell.send(());
    }
}

/// When [`Tracked`] bytes were let go of.
pub(crate) struct Freed {
    freed: Arc<AtomicBool>,
    told: Receiver<()>,
}

impl Freed {
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.freed)
    }

    pub(crate) fn wait(&self) {
        self.told
            .recv_timeout(PATIENCE)
            .expect("the request's body is still held");
    }
}

pub(crate) fn tracked(text: &str) -> (Bytes, Freed) {
    let freed = Arc::new(AtomicBool::new(false));
    let (tell, told) = channel();
    let owner = Tracked {
        data: text.as_bytes().to_vec(),
        freed: Arc::clone(&freed),
        tell,
    };
    (Bytes::from_owner(owner), Freed { freed, told })
}
