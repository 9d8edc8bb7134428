//! The digests of the keys that may call, so that a request without a known key is refused once its head has come,
//! before its body.

use std::collections::HashSet;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName};
use ring::digest::{SHA256, digest};
use sluicegate_relay::ErrorReply;

use crate::refusal::{Form, name_request};

/// SHA-256 of a key.
pub type Digest = [u8; 32];

/// In which clients of the Messages interface send their key.
pub(crate) const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The digests of the keys that may call, and the error for all others.
#[derive(Debug)]
pub struct Callers {
    /// `None`: anyone may.
    pub digests: Option<HashSet<Digest>>,
    /// For a request that presents no key.
    pub missing: InForms,
    /// For one that presents another.
    pub unknown: InForms,
}

/// One error in the forms of all clients.
#[derive(Debug, Clone)]
pub struct InForms {
    /// In OpenAI's.
    pub openai: ErrorReply,
    /// In Anthropic's, without the member `request_id`, which is added.
    pub anthropic: ErrorReply,
}

/// The key that a request presents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presented {
    /// Its digest; `None` also for credentials that are no key.
    pub digest: Option<Digest>,
    /// There is something.
    pub any: bool,
}

impl Presented {
    /// What these two headers present: the bearer token of `Authorization`, or else what `x-api-key` holds. Claude Code
    /// sends both where both of its variables are set, and means the token.
    #[must_use]
    pub fn of(authorization: Option<&[u8]>, x_api_key: Option<&[u8]>) -> Self {
        let token = authorization.and_then(digest_of);
        Self {
            digest: token.or_else(|| x_api_key.map(|key| digest_of_token(key.trim_ascii()))),
            any: authorization.is_some() || x_api_key.is_some(),
        }
    }

    pub(crate) fn in_headers(headers: &HeaderMap) -> Self {
        let value = |name| headers.get(name).map(|value| value.as_bytes());
        Self::of(value(AUTHORIZATION), value(X_API_KEY))
    }
}

impl Callers {
    /// No key may call, and the refusal has no body: the state until the callers are set.
    #[must_use]
    pub fn nobody() -> Self {
        let empty = || ErrorReply {
            status: 503,
            headers: HeaderMap::new(),
            body: Bytes::new(),
        };
        let reply = || InForms {
            openai: empty(),
            anthropic: empty(),
        };
        Self {
            digests: Some(HashSet::new()),
            missing: reply(),
            unknown: reply(),
        }
    }

    /// What a request that presents this key is refused with, in `form`; `None` where it may go on.
    ///
    /// The time of a look-up does not reveal how similar a key was to a known one: digests of similar keys have nothing
    /// in common.
    pub(crate) fn refuse(
        &self,
        key: Presented,
        form: Form,
        request_id: &str,
    ) -> Option<ErrorReply> {
        let digests = self.digests.as_ref()?;
        if key.digest.is_some_and(|key| digests.contains(&key)) {
            return None;
        }
        let replies = if key.any {
            &self.unknown
        } else {
            &self.missing
        };
        match form {
            Form::OpenAi => Some(replies.openai.clone()),
            Form::Anthropic => {
                let mut reply = replies.anthropic.clone();
                name_request(&mut reply, request_id);
                Some(reply)
            }
        }
    }
}

/// The digest of the bearer token in an `Authorization` header; `None` where it has another scheme.
///
/// RFC 9110 section 11.1: the scheme's name is case-insensitive. RFC 6750 section 2.1: one space follows; more are let
/// pass.
#[must_use]
pub fn digest_of(authorization: &[u8]) -> Option<Digest> {
    let space = authorization.iter().position(|byte| *byte == b' ')?;
    let (scheme, token) = authorization.split_at(space);
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        return None;
    }
    Some(digest_of_token(token.trim_ascii()))
}

fn digest_of_token(token: &[u8]) -> Digest {
    let mut key = Digest::default();
    key.copy_from_slice(digest(&SHA256, token).as_ref());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(header: &[u8]) -> Presented {
        Presented::of(Some(header), None)
    }

    fn replies(openai: u16, anthropic: u16) -> InForms {
        let reply = |status, body: &'static [u8]| ErrorReply {
            status,
            headers: HeaderMap::new(),
            body: Bytes::from_static(body),
        };
        InForms {
            openai: reply(openai, b"{}"),
            anthropic: reply(anthropic, br#"{"type":"error"}"#),
        }
    }

    fn callers() -> Callers {
        Callers {
            digests: Some(HashSet::from([digest_of(b"Bearer sk-one").unwrap()])),
            missing: replies(401, 411),
            unknown: replies(403, 413),
        }
    }

    fn status(callers: &Callers, key: Presented) -> Option<u16> {
        let refused = callers.refuse(key, Form::OpenAi, "r");
        refused.map(|reply| reply.status)
    }

    #[test]
    fn a_key_is_known_by_its_digest_alone() {
        let callers = callers();
        for header in ["Bearer sk-one", "bearer  sk-one "] {
            assert_eq!(status(&callers, bearer(header.as_bytes())), None);
        }
        assert!(status(&callers, bearer(b"Bearer sk-two")).is_some());
        assert!(status(&callers, bearer(b"Basic sk-one")).is_some());
        assert!(status(&callers, Presented::of(None, None)).is_some());
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
    fn a_key_may_stand_in_x_api_key_and_a_bearer_token_goes_before_it() {
        let callers = callers();
        let said = |authorization: Option<&[u8]>, key: &[u8]| {
            status(&callers, Presented::of(authorization, Some(key)))
        };
        assert_eq!(said(None, b"sk-one"), None);
        assert_eq!(said(None, b" sk-one "), None);
        assert_eq!(said(None, b"sk-two"), Some(403));
        assert_eq!(said(None, b""), Some(403));
        assert_eq!(said(Some(b"Bearer sk-one"), b"sk-two"), None);
        assert_eq!(said(Some(b"Bearer sk-two"), b"sk-one"), Some(403));
        // Credentials for something else on the way.
        assert_eq!(said(Some(b"Basic c2s="), b"sk-one"), None);
    }

    #[test]
    fn a_missing_key_is_told_from_an_unknown_one() {
        let callers = callers();
        assert_eq!(status(&callers, Presented::of(None, None)), Some(401));
        assert_eq!(status(&callers, bearer(b"Bearer sk-two")), Some(403));
        assert_eq!(status(&callers, bearer(b"Basic sk-one")), Some(403));
    }

    #[test]
    fn an_error_in_anthropics_form_names_the_request() {
        let refused = callers().refuse(bearer(b"Bearer x"), Form::Anthropic, "a\"b");
        let reply = refused.unwrap();
        assert_eq!(reply.status, 413);
        assert_eq!(&reply.body[..], br#"{"type":"error","request_id":"a\"b"}"#);
        assert_eq!(reply.headers.len(), 1);
        assert_eq!(reply.headers["request-id"], "a\"b");
    }

    #[test]
    fn without_keys_anyone_may_call_and_at_first_nobody() {
        let anyone = Callers {
            digests: None,
            ..Callers::nobody()
        };
        let key = bearer(b"Bearer sk-one");
        assert_eq!(status(&anyone, Presented::of(None, None)), None);
        assert_eq!(status(&anyone, key), None);
        assert_eq!(status(&Callers::nobody(), key), Some(503));
    }
}
