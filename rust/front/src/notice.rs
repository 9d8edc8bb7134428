//! A file descriptor that is readable while there is something to take, for an event loop: one end of a pair of
//! sockets, readable while a byte lies in it.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

/// The sockets are made when the descriptor is first asked for; until then a notice has no effect.
#[derive(Default)]
pub(crate) struct Notice(OnceLock<(UnixStream, UnixStream)>);

impl Notice {
    /// The descriptor.
    pub(crate) fn descriptor(&self) -> io::Result<RawFd> {
        if let Some((reader, _)) = self.0.get() {
            return Ok(reader.as_raw_fd());
        }
        let pair = UnixStream::pair()?;
        pair.0.set_nonblocking(true)?;
        pair.1.set_nonblocking(true)?;
        let (reader, _) = self.0.get_or_init(|| pair);
        Ok(reader.as_raw_fd())
    }

    /// There is something.
    pub(crate) fn tell(&self) {
        if let Some((_, writer)) = self.0.get() {
            // A full socket is readable already.
            let _ = (&*writer).write(&[1]);
        }
    }

    /// Everything is about to be taken.
    pub(crate) fn clear(&self) {
        if let Some((reader, _)) = self.0.get() {
            let mut bytes = [0; 64];
            while matches!((&*reader).read(&mut bytes), Ok(64)) {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Whether an event loop would see `descriptor` as readable.
    pub(crate) fn is_readable(descriptor: RawFd) -> bool {
        let mut poll = mio::Poll::new().unwrap();
        let mut events = mio::Events::with_capacity(1);
        let mut source = mio::unix::SourceFd(&descriptor);
        let registry = poll.registry();
        registry
            .register(&mut source, mio::Token(0), mio::Interest::READABLE)
            .unwrap();
        poll.poll(&mut events, Some(std::time::Duration::ZERO))
            .unwrap();
        !events.is_empty()
    }

    #[test]
    fn nobody_is_told_before_somebody_asks() {
        let notice = Notice::default();
        notice.tell();
        let readable = notice.descriptor().unwrap();
        assert_eq!(notice.descriptor().unwrap(), readable);
        assert!(!is_readable(readable));
        notice.tell();
        assert!(is_readable(readable));
        notice.clear();
        assert!(!is_readable(readable));
    }

    #[test]
    fn more_tells_than_a_socket_holds_are_one() {
        let notice = Notice::default();
        let readable = notice.descriptor().unwrap();
        (0..1_000_000).for_each(|_| notice.tell());
        assert!(is_readable(readable));
        notice.clear();
        assert!(!is_readable(readable));
    }
}
