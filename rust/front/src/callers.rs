//! The digests of the keys that may call, so that a request without a known key is refused once its head has come, before its body.

use std::collections::HashSet;

use bytes::Bytes;
use ring::digest::{SHA256, digest};
use sluicegate_relay::ErrorReply;

/// SHA-256 of a key.
pub type Digest = [u8; 32];

/// The digests of the keys that may call, and the error for all others.
#[derive(Debug)]
pub struct Callers {
    /// `None`: anyone may.
    pub digests: Option<HashSet<Digest>>,
    /// For a request that presents no key.
    pub missing: ErrorReply,
    /// For one that presents another.
    pub unknown: ErrorReply,
}

impl Callers {
    /// No key may call, and the refusal has no body: the state until the callers are set.
    #[must_use]
    pub fn nobody() -> Self {
        let reply = || ErrorReply {
            status: 503,
            headers: Vec::new(),
            body: Bytes::new(),
        };
        Self {
            digests: Some(HashSet::new()),
            missing: reply(),
            unknown: reply(),
        }
    }

    /// What a request with this `Authorization` header is refused with; `None` where it may go on. `key`: the digest in the header.
    ///
    /// The time of a look-up does not reveal how similar a key was to a known one: digests of similar keys have nothing in common.
    #[must_use]
    pub fn refuse(&self, authorization: bool, key: Option<&Digest>) -> Option<ErrorReply> {
        let digests = self.digests.as_ref()?;
        if key.is_some_and(|key| digests.contains(key)) {
            return None;
        }
        let reply = if authorization {
            &self.unknown
        } else {
            &self.missing
        };
        Some(reply.clone())
    }
}

/// The digest of the bearer token in an `Authorization` header; `None` where it has another scheme.
///
/// RFC 9110 section 11.1: the scheme's name is case-insensitive. RFC 6750 section 2.1: one space follows; more are let pass.
#[must_use]
pub fn digest_of(authorization: &[u8]) -> Option<Digest> {
    let space = authorization.iter().position(|byte| *byte == b' ')?;
    let (scheme, token) = authorization.split_at(space);
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        return None;
    }
    let mut key = Digest::default();
    key.copy_from_slice(digest(&SHA256, token.trim_ascii()).as_ref());
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_by_its_digest_alone() {
        let known = digest_of(b"Bearer sk-one").unwrap();
        let callers = Callers {
            digests: Some(HashSet::from([known])),
            ..Callers::nobody()
        };
        assert!(callers.refuse(true, Some(&known)).is_none());
        assert!(
            callers
                .refuse(true, digest_of(b"bearer  sk-one ").as_ref())
                .is_none()
        );
        assert!(
            callers
                .refuse(true, digest_of(b"Bearer sk-two").as_ref())
                .is_some()
        );
        assert!(callers.refuse(true, None).is_some());
        assert!(callers.refuse(false, None).is_some());
    }

    #[test]
    fn another_scheme_is_no_key() {
        for header in [
            "Basic sk-one",
            "sk-one",
            "Bearer",
            "Bearersk-one",
            " Bearer sk-one",
            "",
        ] {
            assert_eq!(digest_of(header.as_bytes()), None, "{header}");
        }
    }

    #[test]
    fn a_key_is_the_bytes_after_its_scheme() {
        let known = digest_of(b"Bearer sk-one");
        for header in ["BEARER sk-one", "bearer    sk-one", "Bearer sk-one\t "] {
            assert_eq!(digest_of(header.as_bytes()), known, "{header}");
        }
        for header in [
            "Bearer sk-on",
            "Bearer sk-one sk-one",
            "Bearer SK-ONE",
            "Bearer \u{ff}",
        ] {
            assert_ne!(digest_of(header.as_bytes()), known, "{header}");
        }
        // RFC 6234: the digest of no bytes.
        assert_eq!(
            digest_of(b"Bearer ").map(|key| key[..4].to_vec()),
            Some(vec![0xe3, 0xb0, 0xc4, 0x42])
        );
    }

    #[test]
    fn a_missing_key_is_told_from_an_unknown_one() {
        let reply = |status| ErrorReply {
            status,
            headers: Vec::new(),
            body: Bytes::new(),
        };
        let callers = Callers {
            digests: Some(HashSet::from([digest_of(b"Bearer sk-one").unwrap()])),
            missing: reply(401),
            unknown: reply(403),
        };
        let said = |authorization: Option<&[u8]>| {
            let key = authorization.and_then(digest_of);
            callers
                .refuse(authorization.is_some(), key.as_ref())
                .map(|reply| reply.status)
        };
        assert_eq!(said(None), Some(401));
        assert_eq!(said(Some(b"Bearer sk-two")), Some(403));
        assert_eq!(said(Some(b"Basic sk-one")), Some(403));
        assert_eq!(said(Some(b"Bearer sk-one")), None);
    }

    #[test]
    fn without_keys_anyone_may_call_and_at_first_nobody() {
        let anyone = Callers {
            digests: None,
            ..Callers::nobody()
        };
        let key = digest_of(b"Bearer sk-one");
        assert!(anyone.refuse(false, None).is_none());
        assert!(anyone.refuse(true, key.as_ref()).is_none());
        assert_eq!(
            Callers::nobody()
                .refuse(true, key.as_ref())
                .map(|reply| reply.status),
            Some(503)
        );
    }
}
