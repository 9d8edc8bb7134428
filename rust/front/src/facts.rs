//! The optional facts of a request that policies see: only those that the configuration names are looked for.

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use sluicegate_core::request::affinity;

use crate::callers::X_API_KEY;

/// Bytes of a header's value that are shown, 1 KiB; of a credential all are.
const MAX_VALUE: usize = 1024;

/// What is to be found out of each request.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The headers that are shown.
    pub headers: Vec<HeaderName>,
    /// Which conversation it belongs to.
    pub affinity: bool,
    /// The header that names the conversation; without it the conversation is determined from the body.
    pub affinity_header: Option<HeaderName>,
    /// About how many tokens the input has.
    pub input_tokens: bool,
}

/// What was found out.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The number of the conversation, where it is wanted and there is one. See [`sluicegate_core::request::affinity`].
    pub affinity: Option<u64>,
    /// The conversation has to be determined from the body, because the head does not name it.
    pub by_body: bool,
    /// The wanted headers that there are, of several of a name the first.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// About how many tokens the input has, where that is wanted, or the client asks for it.
    pub input_tokens: Option<u64>,
}

impl Wanted {
    /// The facts of a request's head.
    pub(crate) fn of_head(&self, headers: &HeaderMap) -> Facts {
        let value = |name: &HeaderName| {
            // Credentials of any length are told apart.
            let whole = *name == AUTHORIZATION || *name == X_API_KEY;
            let value = headers.get(name)?;
            match value.as_bytes().get(..MAX_VALUE) {
                // No limit may be lost because a name is long.
                Some(begin) if !whole => HeaderValue::from_bytes(begin).ok(),
                _ => Some(value.clone()),
            }
        };
        let key = self.affinity_header.as_ref().and_then(value);
        let key = key.filter(|key| self.affinity && !key.is_empty());
        let shown = self.headers.iter();
        Facts {
            affinity: key.as_ref().map(|key| affinity::of_key(key.as_bytes())),
            by_body: self.affinity && key.is_none(),
            headers: shown
                .filter_map(|name| Some((name.clone(), value(name)?)))
                .collect(),
            input_tokens: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: HeaderName = HeaderName::from_static("x-session");
    const TENANT: HeaderName = HeaderName::from_static("x-tenant");

    fn head(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let pair = |(name, value): &(HeaderName, &str)| (name.clone(), value.parse().unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn nothing_is_looked_for_unasked() {
        let wanted = Wanted::default();
        let facts = wanted.of_head(&head(&[(SESSION, "a")]));
        assert_eq!((facts.affinity, facts.headers.len()), (None, 0));
        assert!(!facts.by_body);
    }

    #[test]
    fn headers_that_are_named_are_shown_within_bounds() {
        let wanted = Wanted {
            headers: vec![TENANT, SESSION],
            ..Wanted::default()
        };
        let long = "x".repeat(MAX_VALUE + 1);
        let facts = wanted.of_head(&head(&[(TENANT, "a"), (TENANT, "b")]));
        assert_eq!(facts.headers, [(TENANT, HeaderValue::from_static("a"))]);
        let facts = wanted.of_head(&head(&[(SESSION, &long)]));
        assert_eq!(facts.headers, [(SESSION, long[1..].parse().unwrap())]);
        let facts = wanted.of_head(&head(&[(SESSION, &long[1..])]));
        assert_eq!(facts.headers.len(), 1);
        let wanted = Wanted {
            headers: vec![AUTHORIZATION, X_API_KEY],
            ..Wanted::default()
        };
        let facts = wanted.of_head(&head(&[(AUTHORIZATION, &long), (X_API_KEY, &long)]));
        assert_eq!(facts.headers.len(), 2);
    }

    #[test]
    fn a_header_goes_before_the_body() {
        let mut wanted = Wanted {
            affinity: true,
            affinity_header: Some(SESSION),
            ..Wanted::default()
        };
        let facts = wanted.of_head(&head(&[(SESSION, "a")]));
        assert_eq!(facts.affinity, Some(affinity::of_key(b"a")));
        assert!(!facts.by_body);
        for pairs in [&[][..], &[(SESSION, "")], &[(TENANT, "a")]] {
            let facts = wanted.of_head(&head(pairs));
            assert_eq!(facts.affinity, None);
            assert!(facts.by_body);
        }
        wanted.affinity = false;
        assert_eq!(wanted.of_head(&head(&[(SESSION, "a")])).affinity, None);
    }
}
