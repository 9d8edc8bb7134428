//! A message's `usage`.

use crate::output::Spent;

/// What a message says of its usage before it is known.
pub(super) const NONE_YET: &str = "{\"input_tokens\":0,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":0}";

/// Appends the usage in the form of the Messages interface. What was read from and written to the cache stands beside
/// the input there, and zero is said of either: a client keeps what it was told before of a count that is not there.
/// What the upstream charged keeps its name, unless that is one of the added members'. Without usage only the member is
/// there that the clients' types require.
pub(super) fn write(spent: Option<Spent<'_>>, out: &mut Vec<u8>) {
    let Some(spent) = spent else {
        out.extend_from_slice(b"{\"output_tokens\":0}");
        return;
    };
    let usage = spent.usage;
    let read = usage.cached_input_tokens.unwrap_or(0);
    let written = usage.cache_write_tokens.unwrap_or(0);
    let input = usage.input_tokens.unwrap_or(0);
    let mut object = format!(
        "{{\"input_tokens\":{},\"cache_creation_input_tokens\":{written},\"cache_read_input_tokens\":{read},\"output_tokens\":{}",
        input.saturating_sub(read).saturating_sub(written),
        usage.output_tokens.unwrap_or(0),
    );
    if let Some(long) = usage.cache_write_1h_tokens {
        object.push_str(&format!(
            ",\"cache_creation\":{{\"ephemeral_5m_input_tokens\":{},\"ephemeral_1h_input_tokens\":{long}}}",
            written.saturating_sub(long),
        ));
    }
    if let Some(thinking) = usage.reasoning_tokens {
        object.push_str(&format!(
            ",\"output_tokens_details\":{{\"thinking_tokens\":{thinking}}}"
        ));
    }
    spent.end(object.into_bytes(), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Members;
    use crate::usage::Usage;

    fn written(usage: &Usage, members: Option<&'static str>) -> String {
        let members = members.map(|members| Members::parse(members).unwrap());
        let mut out = Vec::new();
        let spent = Spent {
            usage,
            members: members.as_ref(),
        };
        write(Some(spent), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn caches_stand_beside_the_input() {
        let usage = Usage {
            input_tokens: Some(100),
            cached_input_tokens: Some(60),
            cache_write_tokens: Some(10),
            cache_write_1h_tokens: Some(4),
            output_tokens: Some(9),
            reasoning_tokens: Some(5),
            ..Usage::default()
        };
        assert_eq!(
            written(&usage, Some("\"cost\":0.5")),
            r#"{"input_tokens":30,"cache_creation_input_tokens":10,"cache_read_input_tokens":60,"output_tokens":9,"cache_creation":{"ephemeral_5m_input_tokens":6,"ephemeral_1h_input_tokens":4},"output_tokens_details":{"thinking_tokens":5},"cost":0.5}"#
        );
    }

    #[test]
    fn no_count_is_below_zero_and_none_is_left_out() {
        let usage = Usage {
            input_tokens: Some(5),
            cached_input_tokens: Some(60),
            ..Usage::default()
        };
        assert_eq!(
            written(&usage, None),
            r#"{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":60,"output_tokens":0}"#
        );
        let mut out = Vec::new();
        write(None, &mut out);
        assert_eq!(out, b"{\"output_tokens\":0}");
    }
}
