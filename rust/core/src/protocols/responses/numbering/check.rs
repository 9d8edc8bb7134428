//! Whether a client could read an upstream's events: what they must have is there, and they are not more than anyone
//! has a reason for.

use super::super::fold::said_of;
use super::super::reading::event::Event;
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::limits::MAX_ITEMS;

#[derive(Debug, Default)]
pub(super) struct Check {
    items: usize,
    done: usize,
    parts: usize,
}

impl Check {
    /// Takes in the next event of a reply. An error says what it lacks.
    pub(super) fn take(&mut self, event: &Event<'_>) -> Result<(), String> {
        if event.kind.contains(&b'\\') {
            return Err("its type has an escape".into());
        }
        if let Some(name) = event.misfit {
            return Err(format!("`{name}` is of a wrong type, or too large"));
        }
        if said_of(event.kind).is_some() {
            let said = match event.kind.ends_with(b".delta") {
                true => event.delta,
                false => event.whole,
            };
            return match said.is_some_and(|said| said.kind() == Kind::String) {
                true => Ok(()),
                false => Err("it has no text".into()),
            };
        }
        match event.kind {
            b"response.output_item.added" => {
                event.item.ok_or("it has no `item`")?;
                self.items += 1;
            }
            b"response.output_item.done" => {
                event.item.ok_or("it has no `item`")?;
                self.done += 1;
            }
            b"response.content_part.added"
            | b"response.reasoning_part.added"
            | b"response.reasoning_summary_part.added" => {
                event.part.ok_or("it has no `part`")?;
                self.parts += 1;
            }
            b"response.content_part.done"
            | b"response.reasoning_part.done"
            | b"response.reasoning_summary_part.done" => {
                event.part.ok_or("it has no `part`")?;
            }
            b"response.output_text.annotation.added" => self.parts += 1,
            b"response.completed" | b"response.incomplete" | b"response.failed" => {
                let response = event.response.ok_or("it has no `response`")?;
                let output = response.get("output");
                if output.is_some_and(|output| output.kind() != Kind::Array) {
                    return Err("`output` is no array".into());
                }
                let items = output.iter().flat_map(Node::elements);
                let mut count = 0usize;
                for item in items {
                    if item.kind() != Kind::Object {
                        return Err("`output` holds what is no item".into());
                    }
                    count += 1;
                }
                if count > MAX_ITEMS {
                    return Err(too_many("items"));
                }
            }
            _ => {}
        }
        if self.items.max(self.done) > MAX_ITEMS {
            return Err(too_many("items"));
        }
        if self.parts > MAX_ITEMS {
            return Err(too_many("parts"));
        }
        Ok(())
    }

    /// Whether an item began that has not ended.
    pub(super) fn has_open(&self) -> bool {
        self.items > self.done
    }
}

fn too_many(what: &str) -> String {
    format!("the response has more than {MAX_ITEMS} {what}")
}
