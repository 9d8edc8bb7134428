//! A message's `usage`.

use crate::output::Spent;
use crate::usage::Usage;

/// Appends what a message says of its usage at its beginning: its input, and no output yet.
pub(super) fn begin(usage: &Usage, out: &mut Vec<u8>) {
    out.extend_from_slice(input(usage).as_bytes());
    out.extend_from_slice(b",\"output_tokens\":0}");
}

/// The counts of the input, in an object that is still open. What was read from and written to the cache stands beside
/// the others.
fn input(usage: &Usage) -> String {
    let read = usage.cached_input_tokens.unwrap_or(0);
    let written = usage.cache_write_tokens.unwrap_or(0);
    let all = usage.input_tokens.unwrap_or(0);
    format!(
        "{{\"input_tokens\":{},\"cache_creation_input_tokens\":{written},\"cache_read_input_tokens\":{read}",
        all.saturating_sub(read).saturating_sub(written),
    )
}

/// Appends the usage in the form of the Messages interface. Zero is said of caches, too: a client keeps what it was
/// told before of a count that is not there.
/// What the upstream charged keeps its name, unless that is one of the added members'. Without usage only the member is
/// there that the clients' types require.
pub(super) fn write(spent: Option<Spent<'_>>, out: &mut Vec<u8>) {
    let Some(spent) = spent else {
        out.extend_from_slice(b"{\"output_tokens\":0}");
        return;
    };
    let usage = spent.usage;
    let mut object = input(usage);
    object.push_str(&format!(
        ",\"output_tokens\":{}",
        usage.output_tokens.unwrap_or(0)
    ));
    if let Some(long) = usage.cache_write_1h_tokens {
        object.push_str(&format!(
            ",\"cache_creation\":{{\"ephemeral_5m_input_tokens\":{},\"ephemeral_1h_input_tokens\":{long}}}",
            usage
                .cache_write_tokens
                .unwrap_or(0)
                .saturating_sub(long),
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
    use super::super::{KnownMessage, MessagesWriter, Written};
    use super::*;
    use crate::output::{Head, Piece, Writer, spent};

    fn written(usage: &Usage, members: Option<&'static str>) -> String {
        spent::written(usage, members, |spent, out| write(Some(spent), out))
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

    #[test]
    fn a_stream_begins_with_the_input_as_far_as_it_is_known() {
        let begun = |estimate, counted: Option<u64>| {
            let mut writer = MessagesWriter::new(Written {
                streams: true,
                known: KnownMessage {
                    input_tokens: estimate,
                    ..KnownMessage::default()
                },
                ..Written::default()
            });
            if let Some(input) = counted {
                writer.foresee(&Usage {
                    input_tokens: Some(input),
                    cached_input_tokens: Some(20),
                    output_tokens: Some(3),
                    ..Usage::default()
                });
            }
            let mut out = Vec::new();
            writer.write(&Piece::Head(Head::default()), &mut out);
            String::from_utf8(out).unwrap()
        };
        for (estimate, counted, input, read) in [
            (0, None, 0, 0),
            (40, None, 40, 0),
            (40, Some(50), 30, 20),
            // vLLM counts at the end, and says 0 until then.
            (40, Some(0), 40, 0),
        ] {
            let usage = format!(
                r#""usage":{{"input_tokens":{input},"cache_creation_input_tokens":0,"cache_read_input_tokens":{read},"output_tokens":0}}"#
            );
            assert!(begun(estimate, counted).contains(&usage), "{usage}");
        }
    }
}
