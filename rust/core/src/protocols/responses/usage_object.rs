//! A response's `usage`.

use crate::output::Spent;

use super::vocabulary::{count, key, number};

/// Appends the usage in the form of the Responses interface. Every member that its types require is there: a count that
/// was not reported is 0. What the upstream charged keeps its name, unless that is one of the added members'.
pub(super) fn write(spent: Spent<'_>, out: &mut Vec<u8>) {
    let usage = spent.usage;
    let mut object = b"{\"input_tokens\":".to_vec();
    number(usage.input_tokens.unwrap_or(0), &mut object);
    key("input_tokens_details", &mut object);
    object.extend_from_slice(b"{\"cached_tokens\":");
    number(usage.cached_input_tokens.unwrap_or(0), &mut object);
    let written = usage.cache_write_tokens.unwrap_or(0);
    count("cache_write_tokens", written, &mut object);
    object.push(b'}');
    count(
        "output_tokens",
        usage.output_tokens.unwrap_or(0),
        &mut object,
    );
    key("output_tokens_details", &mut object);
    object.extend_from_slice(b"{\"reasoning_tokens\":");
    number(usage.reasoning_tokens.unwrap_or(0), &mut object);
    object.push(b'}');
    count(
        "total_tokens",
        usage.total_tokens().unwrap_or(0),
        &mut object,
    );
    spent.end(object, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::spent;
    use crate::usage::Usage;

    fn written(usage: &Usage, members: Option<&'static str>) -> String {
        spent::written(usage, members, write)
    }

    #[test]
    fn every_required_count_is_there() {
        assert_eq!(
            written(&Usage::default(), None),
            r#"{"input_tokens":0,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}"#
        );
    }

    #[test]
    fn our_cost_and_the_upstreams_are_told_apart() {
        let usage = Usage {
            input_tokens: Some(5),
            cached_input_tokens: Some(3),
            cache_write_tokens: Some(1),
            output_tokens: Some(7),
            reasoning_tokens: Some(2),
            upstream_cost: Some("0.5".into()),
            upstream_cost_field: Some("cost"),
            ..Usage::default()
        };
        assert_eq!(
            written(&usage, Some("\"cost\":0.25")),
            r#"{"input_tokens":5,"input_tokens_details":{"cached_tokens":3,"cache_write_tokens":1},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":12,"upstream_cost":0.5,"cost":0.25}"#
        );
    }
}
