//! Reading the members of objects whose text has been checked, and writing JSON text on one line.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::scan::{self, Elements, Kind, Members, Value};
use super::string;

/// Objects up to this many members are searched for duplicate keys pair by pair, which needs no memory of its own.
pub(crate) const FEW: usize = 16;

/// One member of an object.
pub(crate) struct Field<'a> {
    /// The key between its quotes, in the one spelling that [`spelling`] gives.
    pub(crate) key: Cow<'a, [u8]>,
    /// The value.
    pub(crate) value: Value,
}

/// The members of `object`, none when it is no object. Of a key that is there twice the last value counts, as in most
/// parsers.
pub(crate) fn fields<'a>(text: &'a [u8], object: Value) -> Vec<Field<'a>> {
    if object.kind != Kind::Object {
        return Vec::new();
    }
    let Ok(members) = Members::at(text, object.start, scan::MAX_DEPTH) else {
        return Vec::new();
    };
    let mut fields: Vec<Field<'a>> = Vec::with_capacity(FEW / 2);
    let mut places: BTreeMap<Cow<'a, [u8]>, usize> = BTreeMap::new();
    for member in members.map_while(Result::ok) {
        let key = spelling(member.raw_key(text));
        let place = if fields.len() < FEW {
            fields.iter().position(|field| field.key == key)
        } else {
            if places.is_empty() {
                places.extend(fields.iter().enumerate().map(|(i, f)| (f.key.clone(), i)));
            }
            places.get(&key).copied()
        };
        match place.and_then(|place| fields.get_mut(place)) {
            Some(field) => field.value = member.value,
            None => {
                if fields.len() >= FEW {
                    places.insert(key.clone(), fields.len());
                }
                fields.push(Field {
                    key,
                    value: member.value,
                });
            }
        }
    }
    fields
}

/// The value of the member `key` among `fields`.
pub(crate) fn find(fields: &[Field<'_>], key: &str) -> Option<Value> {
    fields
        .iter()
        .find(|field| *field.key == *key.as_bytes())
        .map(|field| field.value)
}

/// The values of `array`, none when it is no array.
pub(crate) fn elements(text: &[u8], array: Value) -> impl Iterator<Item = Value> {
    let found = (array.kind == Kind::Array)
        .then(|| Elements::at(text, array.start, scan::MAX_DEPTH).ok())
        .flatten();
    found.into_iter().flatten().map_while(Result::ok)
}

/// What an array holds between its brackets, without the white space at both ends.
pub(crate) fn interior(text: &[u8], array: Value) -> &[u8] {
    text.get(array.start + 1..array.end.saturating_sub(1))
        .unwrap_or_default()
        .trim_ascii()
}

/// A key between its quotes in one spelling: escapes only where RFC 8259 demands them.
///
/// A key with half of a surrogate pair has no other spelling than its own.
fn spelling(raw: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', raw).is_none() {
        return Cow::Borrowed(raw);
    }
    let decoded = string::decode(raw);
    if decoded.contains(char::REPLACEMENT_CHARACTER) {
        return Cow::Borrowed(raw);
    }
    let mut quoted = Vec::with_capacity(raw.len());
    string::encode(&decoded, &mut quoted);
    quoted.pop();
    quoted.drain(..1);
    Cow::Owned(quoted)
}

/// How much content a value has: 0 for `null`, 1 for an empty string, array or object, 2 for everything else.
pub(crate) fn weight(text: &[u8], value: Value) -> u8 {
    match value.kind {
        Kind::Null => 0,
        Kind::String => 1 + u8::from(!value.content(text).is_empty()),
        Kind::Array | Kind::Object => 1 + u8::from(!interior(text, value).is_empty()),
        Kind::Number | Kind::True | Kind::False => 2,
    }
}

/// Appends checked JSON text without the white space between its tokens, so that it fits one line.
///
/// U+0085, U+2028 and U+2029 inside strings are escaped: they end no line of an event stream, but they do for
/// clients that split decoded text with a general function (Python's `str.splitlines`).
pub(crate) fn compact(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    let mut in_string = false;
    while let Some(&byte) = rest.first() {
        let (plain, taken): (&[u8], usize) = match (in_string, byte) {
            (false, b' ' | b'\t' | b'\n' | b'\r') => (b"", 1),
            (true, b'\\') => (rest.get(..2).unwrap_or(rest), 2),
            (_, b'"') => {
                in_string = !in_string;
                (b"\"", 1)
            }
            (_, 0xC2) if rest.starts_with("\u{85}".as_bytes()) => (b"\\u0085", 2),
            (_, 0xE2) if rest.starts_with("\u{2028}".as_bytes()) => (b"\\u2028", 3),
            (_, 0xE2) if rest.starts_with("\u{2029}".as_bytes()) => (b"\\u2029", 3),
            (_, 0xC2 | 0xE2) => (rest.get(..1).unwrap_or_default(), 1),
            (true, _) => {
                let is_plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | 0xC2 | 0xE2);
                let end = rest.iter().take_while(|byte| is_plain(byte)).count();
                (rest.get(..end).unwrap_or(rest), end)
            }
            (false, _) => (rest.get(..1).unwrap_or_default(), 1),
        };
        out.extend_from_slice(plain);
        rest = rest.get(taken..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Below and above the number of members from which on places are kept.
    #[test]
    fn the_last_of_a_key_counts_whatever_its_spelling() {
        for members in [1, FEW - 1, FEW, FEW + 1, 3 * FEW] {
            let said = |value: &str, a: &str| {
                let member = |i| format!("\"{a}{i}\":{value}{i}");
                (0..members).map(member).collect::<Vec<_>>().join(",")
            };
            let text = format!("{{{},{}}}", said("1", "a"), said("2", "\\u0061"));
            let object = scan::document(text.as_bytes(), 8).unwrap();
            let fields = fields(text.as_bytes(), object);
            let found: Vec<_> = fields
                .iter()
                .map(|field| (&*field.key, field.value.bytes(text.as_bytes())))
                .map(|(key, value)| format!("{}={}", key.escape_ascii(), value.escape_ascii()))
                .collect();
            let expected: Vec<_> = (0..members).map(|i| format!("a{i}=2{i}")).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn keys_have_one_spelling_where_they_have_one() {
        for (raw, spelled) in [
            (&br"a"[..], &br"a"[..]),
            (br"\u0061\/\u00e9", "a/é".as_bytes()),
            (br"\u000a\u0022\u005c", br#"\n\"\\"#),
            (br"\ud83d\ude00", "😀".as_bytes()),
            (br"\ud83d", br"\ud83d"),
        ] {
            assert_eq!(&*spelling(raw), spelled);
        }
    }
}
