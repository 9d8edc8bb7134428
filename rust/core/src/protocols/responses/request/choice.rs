//! Which tools may be called, in the form of Responses.

use crate::input::place::{Place, Refusal, of_kind, spelled};
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::writer::Writer;

/// Writes the value of `tool_choice`; one that is in the form of Responses already stays as it is.
pub(in crate::protocols::responses) fn write_choice(
    choice: Node<'_>,
    writer: &mut Writer,
) -> Result<(), Refusal> {
    let place = Place::Top("tool_choice");
    match choice.kind() {
        Kind::String => writer.raw(choice.bytes()),
        Kind::Object => {
            let [kind, allowed] = choice.pick(["type", "allowed_tools"]);
            spelled(kind, &place.member("type"))?;
            match allowed.filter(|_| kind.is_some_and(|kind| kind.is("allowed_tools"))) {
                Some(allowed) => write_allowed(allowed, &place.member("allowed_tools"), writer)?,
                None => write_chosen(choice, &place, writer)?,
            }
        }
        kind => return Err(Refusal::wrong_type(&place, "a string or an object", kind)),
    }
    Ok(())
}

fn write_allowed(allowed: Node<'_>, place: &Place<'_>, writer: &mut Writer) -> Result<(), Refusal> {
    of_kind(allowed, Kind::Object, "an object", place)?;
    writer.open(b'{');
    writer.member_spelled("type", b"allowed_tools");
    for (key, value) in allowed.members() {
        if key.is("tools") {
            let place = place.member("tools");
            of_kind(value, Kind::Array, "an array", &place)?;
            writer.key("tools");
            writer.open(b'[');
            for (index, tool) in value.elements().enumerate() {
                write_chosen(tool, &place.element(index), writer)?;
            }
            writer.close(b']');
        } else if !key.is("type") {
            writer.copy_member(key.bytes(), value.bytes());
        }
    }
    writer.close(b'}');
    Ok(())
}

/// `{type, function: {name}}` as `{type, name}`.
fn write_chosen(chosen: Node<'_>, place: &Place<'_>, writer: &mut Writer) -> Result<(), Refusal> {
    of_kind(chosen, Kind::Object, "an object", place)?;
    let [kind, function, custom] = chosen.pick(["type", "function", "custom"]);
    let kind = spelled(kind, &place.member("type"))?;
    let Some(inner) = function.or(custom) else {
        writer.raw(chosen.bytes());
        return Ok(());
    };
    of_kind(inner, Kind::Object, "an object", place)?;
    let name = spelled(inner.get("name"), &place.member("name"))?;
    writer.open(b'{');
    writer.member_spelled("type", kind);
    writer.member_spelled("name", name);
    writer.close(b'}');
    Ok(())
}
