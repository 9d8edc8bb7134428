//! The end of a usage object that is written anew: what it cost.

use crate::cost;
use crate::json::scan::{Kind, MAX_DEPTH, Value};
use crate::json::splice::Splice;

use super::Spent;
#[cfg(test)]
use crate::{cost::Members, usage::Usage};

impl Spent<'_> {
    /// Appends `object`, which has its counts and is still open, with the costs. What the upstream charged stands where
    /// the upstream had it, unless that name is one of the added members'.
    pub(crate) fn end(self, mut object: Vec<u8>, out: &mut Vec<u8>) {
        if let (Some(cost), Some(field)) =
            (&self.usage.upstream_cost, self.usage.upstream_cost_field)
        {
            let said = match field.split_once('.') {
                None => format!(",\"{field}\":{cost}"),
                // The path to it (Perplexity's `cost.total_cost`).
                Some((outer, inner)) => format!(",\"{outer}\":{{\"{inner}\":{cost}}}"),
            };
            object.extend_from_slice(said.as_bytes());
        }
        object.push(b'}');
        let mut plan = Splice::new();
        if let Some(members) = self.members {
            let whole = Value {
                kind: Kind::Object,
                start: 0,
                end: object.len(),
            };
            cost::splice(&object, whole, members, MAX_DEPTH, &mut plan);
        }
        plan.apply(&object, out);
    }
}

/// What `write` makes of `usage` and the added `members`, for tests.
#[cfg(test)]
pub(crate) fn written(
    usage: &Usage,
    members: Option<&'static str>,
    write: impl FnOnce(Spent<'_>, &mut Vec<u8>),
) -> String {
    let members = members.map(|members| Members::parse(members).unwrap());
    let mut out = Vec::new();
    let spent = Spent {
        usage,
        members: members.as_ref(),
    };
    write(spent, &mut out);
    String::from_utf8(out).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_where_the_upstream_has_it() {
        let usage = Usage {
            upstream_cost: Some("0.5".into()),
            upstream_cost_field: Some("cost.total_cost"),
            ..Usage::default()
        };
        let said = written(&usage, Some("\"cost\":1"), |spent, out| {
            spent.end(b"{\"total_tokens\":0".to_vec(), out);
        });
        let expected = r#"{"total_tokens":0,"upstream_cost":{"total_cost":0.5},"cost":1}"#;
        assert_eq!(said, expected);
    }
}
