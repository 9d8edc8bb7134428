//! Why a connection failed, as one word, where the fault's kind leaves it open.

use std::io;

use crate::dial::LookupFailed;
use crate::unanswered::Cause;

/// The names are stable: they are metric labels and log values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The host's name was not found, or no name server could be reached.
    Dns,
    /// Nobody listens on the port or the socket.
    Refused,
    /// There is no way to the host.
    Unreachable,
    /// There is no such Unix socket.
    NoSocket,
    /// This process may not connect there.
    Denied,
    /// There were no more open files, ports or buffers on this machine.
    Exhausted,
    /// The TLS handshake failed: a certificate that is not trusted, no protocol in common.
    Tls,
    /// The upstream reset the connection.
    Reset,
    /// The upstream closed the connection.
    Closed,
    /// Nothing of the above.
    Other,
}

impl Reason {
    /// Every reason, for documentation and tests.
    pub const ALL: [Reason; 10] = [
        Reason::Dns,
        Reason::Refused,
        Reason::Unreachable,
        Reason::NoSocket,
        Reason::Denied,
        Reason::Exhausted,
        Reason::Tls,
        Reason::Reset,
        Reason::Closed,
        Reason::Other,
    ];

    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Dns => "dns",
            Reason::Refused => "refused",
            Reason::Unreachable => "unreachable",
            Reason::NoSocket => "no_socket",
            Reason::Denied => "denied",
            Reason::Exhausted => "exhausted",
            Reason::Tls => "tls",
            Reason::Reset => "reset",
            Reason::Closed => "closed",
            Reason::Other => "other",
        }
    }

    /// The reason of the first of `causes` that has one.
    pub(crate) fn of<'a>(causes: impl Iterator<Item = Cause<'a>>) -> Self {
        for cause in causes {
            if cause.is::<LookupFailed>() {
                return Reason::Dns;
            }
            if let Some(error) = cause.downcast_ref::<hyper::Error>()
                && (error.is_incomplete_message() || error.is_closed() || error.is_canceled())
            {
                return Reason::Closed;
            }
            if let Some(reason) = cause.downcast_ref::<io::Error>().and_then(of_io) {
                return reason;
            }
        }
        Reason::Other
    }
}

fn of_io(error: &io::Error) -> Option<Reason> {
    // What a wrapping error has inside is not one of its causes.
    if error
        .get_ref()
        .is_some_and(|inner| inner.is::<rustls::Error>())
    {
        return Some(Reason::Tls);
    }
    if let Some(inner) = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<io::Error>())
    {
        return of_io(inner);
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Some(Reason::Refused),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Some(Reason::Unreachable)
        }
        io::ErrorKind::NotFound => Some(Reason::NoSocket),
        io::ErrorKind::PermissionDenied => Some(Reason::Denied),
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse => Some(Reason::Exhausted),
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => Some(Reason::Reset),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => Some(Reason::Closed),
        _ => error
            .raw_os_error()
            .filter(|code| NO_RESOURCES.contains(code))
            .map(|_| Reason::Exhausted),
    }
}

/// EMFILE, ENFILE and ENOBUFS: the standard library has no names for them.
#[cfg(target_os = "linux")]
const NO_RESOURCES: [i32; 3] = [24, 23, 105];
#[cfg(not(target_os = "linux"))]
const NO_RESOURCES: [i32; 3] = [24, 23, 55];

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(error: &io::Error) -> Reason {
        Reason::of(std::iter::once(error as Cause<'_>))
    }

    #[test]
    fn an_error_of_the_system_has_a_word() {
        for (kind, expected) in [
            (io::ErrorKind::ConnectionRefused, Reason::Refused),
            (io::ErrorKind::HostUnreachable, Reason::Unreachable),
            (io::ErrorKind::NotFound, Reason::NoSocket),
            (io::ErrorKind::PermissionDenied, Reason::Denied),
            (io::ErrorKind::ConnectionReset, Reason::Reset),
            (io::ErrorKind::UnexpectedEof, Reason::Closed),
            (io::ErrorKind::Other, Reason::Other),
        ] {
            assert_eq!(reason(&kind.into()), expected);
        }
        assert_eq!(reason(&io::Error::from_raw_os_error(24)), Reason::Exhausted);
    }

    #[test]
    fn what_tls_refuses_is_found_inside_of_what_wraps_it() {
        let inner = io::Error::other(rustls::Error::DecryptError);
        assert_eq!(reason(&inner), Reason::Tls);
        assert_eq!(reason(&io::Error::other(inner)), Reason::Tls);
    }

    #[test]
    fn names_are_distinct() {
        let names: std::collections::HashSet<_> = Reason::ALL.map(Reason::as_str).into();
        assert_eq!(names.len(), Reason::ALL.len());
    }
}
