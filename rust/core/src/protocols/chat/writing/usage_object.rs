//! A completion's `usage`.

use crate::output::Spent;

/// Appends the usage in the form of Chat Completions. The three counts that its types require are there; a part that
/// was not reported is not. What the upstream charged keeps its name, unless that is one of the added members'.
pub(super) fn write(spent: Spent<'_>, out: &mut Vec<u8>) {
    let usage = spent.usage;
    let mut object = format!(
        "{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{}",
        usage.input_tokens.unwrap_or(0),
        usage.output_tokens.unwrap_or(0),
        usage.total_tokens().unwrap_or(0),
    );
    details(
        "prompt_tokens_details",
        &[
            ("cached_tokens", usage.cached_input_tokens),
            ("cache_write_tokens", usage.cache_write_tokens),
            ("audio_tokens", usage.input_audio_tokens),
            ("image_tokens", usage.input_image_tokens),
        ],
        &mut object,
    );
    details(
        "completion_tokens_details",
        &[
            ("reasoning_tokens", usage.reasoning_tokens),
            ("audio_tokens", usage.output_audio_tokens),
            ("image_tokens", usage.output_image_tokens),
        ],
        &mut object,
    );
    spent.end(object.into_bytes(), out);
}

fn details(name: &str, counts: &[(&str, Option<u64>)], object: &mut String) {
    let mut separator = format!(",\"{name}\":{{");
    for (name, count) in counts {
        if let Some(count) = count {
            object.push_str(&format!("{separator}\"{name}\":{count}"));
            separator = ",".into();
        }
    }
    if separator == "," {
        object.push('}');
    }
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
    fn what_was_not_reported_is_not_said() {
        assert_eq!(
            written(&Usage::default(), None),
            r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#
        );
    }

    #[test]
    fn our_cost_and_the_upstreams_are_told_apart() {
        let usage = Usage {
            input_tokens: Some(5),
            cached_input_tokens: Some(3),
            output_tokens: Some(7),
            reasoning_tokens: Some(0),
            output_audio_tokens: Some(1),
            upstream_cost: Some("0.5".into()),
            upstream_cost_field: Some("cost"),
            ..Usage::default()
        };
        assert_eq!(
            written(&usage, Some("\"cost\":0.25")),
            r#"{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":3},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":1},"upstream_cost":0.5,"cost":0.25}"#
        );
    }
}
