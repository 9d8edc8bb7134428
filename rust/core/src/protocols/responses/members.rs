//! Members of a JSON object, put in place of its own.

use crate::json::fields::compact;
use crate::json::node::Node;
use crate::json::string;

/// The object on one line, with these members in the place of its own, or behind them. What is no object is taken for
/// an empty one.
///
/// Every value must be JSON on one line.
pub(super) fn with_members(object: &[u8], members: &[(&str, &[u8])]) -> Vec<u8> {
    let added: usize = members.iter().map(|(_, value)| value.len()).sum();
    let mut out = Vec::with_capacity(object.len() + added);
    let mut written = vec![false; members.len()];
    out.push(b'{');
    let begin = |name: &[u8], out: &mut Vec<u8>| {
        out.extend_from_slice(if out.len() == 1 { b"\"" } else { b",\"" });
        out.extend_from_slice(name);
        out.extend_from_slice(b"\":");
    };
    for (key, value) in Node::document(object).iter().flat_map(Node::members) {
        let spelled = key.spelled().unwrap_or_default();
        let name = string::plain(spelled);
        begin(spelled, &mut out);
        let place = members
            .iter()
            .position(|(with, _)| *with.as_bytes() == *name);
        match place.and_then(|place| members.get(place).zip(written.get_mut(place))) {
            Some(((_, with), written)) => {
                out.extend_from_slice(with);
                *written = true;
            }
            None => compact(value.bytes(), &mut out),
        }
    }
    for ((name, with), written) in members.iter().zip(written) {
        if !written {
            begin(name.as_bytes(), &mut out);
            out.extend_from_slice(with);
        }
    }
    out.push(b'}');
    out
}

/// Appends a value to a list of them.
pub(super) fn append(values: &mut Vec<u8>, value: &[u8]) {
    if !values.is_empty() {
        values.push(b',');
    }
    values.extend_from_slice(value);
}

/// Appends values, with commas between them, to a list on one line.
pub(super) fn append_compact(values: &mut Vec<u8>, more: &[u8]) {
    if !more.is_empty() {
        append(values, b"");
        compact(more, values);
    }
}

/// What stands between the brackets of the member `name` of `object`, an array; empty where it is none.
pub(super) fn interior<'a>(object: Node<'a>, name: &str) -> &'a [u8] {
    let array = object.get(name).map(|value| value.bytes());
    array
        .and_then(|array| array.strip_prefix(b"[")?.strip_suffix(b"]"))
        .map_or(b"", <[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_take_the_place_of_those_of_their_name_and_others_follow() {
        let object = b"{ \"a\" : 1.50,\n\"\\u0062\":[ 2 ], \"c\":3 }";
        let changed = with_members(object, &[("b", b"0"), ("d", b"4")]);
        assert_eq!(changed, b"{\"a\":1.50,\"\\u0062\":0,\"c\":3,\"d\":4}");
        assert_eq!(with_members(b"[1]", &[("a", b"1")]), b"{\"a\":1}");
        assert_eq!(with_members(b"", &[]), b"{}");
    }
}
