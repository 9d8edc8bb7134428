//! What an upstream calls what the client calls otherwise: the client's names of tools that are too long for it, or
//! have characters that it does not take.
//!
//! A name is adapted by a pure function, so that it is the same in each turn of a conversation: upstreams keep its
//! beginning in a cache.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use xxhash_rust::xxh3::xxh3_64;

use crate::json::string;

/// Characters of a name that are left of one that is cut: behind them stand `_` and eight digits.
const LAST: usize = 9;

/// The names that an upstream was told, and the client's for them. Given from the request to its reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    clients: BTreeMap<Box<str>, Box<str>>,
}

impl Names {
    /// Notes what the upstream was told instead of `client`. The same name for both is not noted.
    pub fn add(&mut self, upstream: &str, client: &str) {
        if upstream != client {
            self.clients.insert(upstream.into(), client.into());
        }
    }

    /// The client's name for what the upstream calls `upstream`.
    #[must_use]
    pub fn client<'n>(&'n self, upstream: &'n str) -> &'n str {
        self.clients.get(upstream).map_or(upstream, |name| name)
    }

    /// Whether the upstream calls everything as the client does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}

/// `name` in at most `longest` letters, digits, `_` and `-`: the same name where it is that already, else what can stay
/// of it, `_`, and eight hexadecimal digits of its hash.
///
/// ```
/// use sluicegate_core::input::names::adapted;
///
/// assert_eq!(adapted("get_weather", 64), "get_weather");
/// let dotted = adapted("files.read", 64);
/// assert!(dotted.starts_with("files_read_") && dotted.len() == 19);
/// assert_eq!(adapted(&"x".repeat(70), 64).len(), 64);
/// ```
#[must_use]
pub fn adapted(name: &str, longest: usize) -> Cow<'_, str> {
    let is_taken = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
    if name.len() <= longest && !name.is_empty() && name.chars().all(is_taken) {
        return Cow::Borrowed(name);
    }
    let room = longest.saturating_sub(LAST);
    let mut adapted: String = name
        .chars()
        .take(room)
        .map(|char| if is_taken(char) { char } else { '_' })
        .collect();
    let hash = xxh3_64(name.as_bytes()) >> 32;
    let _ = write!(adapted, "_{hash:08x}");
    Cow::Owned(adapted)
}

/// A name or an id, spelled as between the quotes of a JSON string, in at most `longest` bytes: see [`adapted`]. One
/// that is short enough stays as it is, whatever its characters.
#[must_use]
pub(crate) fn cut(name: &[u8], longest: usize) -> Cow<'_, [u8]> {
    if name.len() <= longest {
        return Cow::Borrowed(name);
    }
    let decoded = string::decode(name);
    if decoded.len() <= longest {
        return Cow::Borrowed(name);
    }
    Cow::Owned(adapted(&decoded, longest).into_owned().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_adapted_the_same_way_each_time_and_no_two_alike() {
        let long = "a".repeat(65);
        let other = format!("{}b", "a".repeat(64));
        assert_eq!(adapted(&long, 64), adapted(&long, 64));
        assert_ne!(adapted(&long, 64), adapted(&other, 64));
        assert_ne!(adapted("a.b", 64), adapted("a/b", 64));
        assert_eq!(adapted(&long, 64).len(), 64);
        assert_eq!(adapted("é".repeat(100).as_str(), 64).len(), 64);
        assert_eq!(adapted("", 64).len(), LAST);
    }

    #[test]
    fn a_client_reads_its_own_names() {
        let mut names = Names::default();
        names.add("files_read_0", "files.read");
        names.add("same", "same");
        assert_eq!(names.client("files_read_0"), "files.read");
        assert_eq!(names.client("same"), "same");
        assert!(!names.is_empty() && Names::default().is_empty());
    }
}
