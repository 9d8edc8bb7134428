//! Tools, and which of them may be called, one level flatter.

use crate::input::place::{Place, Refusal, of_kind, spelled};
use crate::json::node::Node;
use crate::json::scan::Kind;
use crate::json::writer::Writer;

/// Members that a tool has for itself or in its inner object.
const OWN: [&str; 8] = [
    "type",
    "function",
    "custom",
    "name",
    "description",
    "parameters",
    "strict",
    "format",
];

pub(super) fn write_tools(tools: Node<'_>, writer: &mut Writer) -> Result<(), Refusal> {
    let place = Place::Top("tools");
    of_kind(tools, Kind::Array, "an array", &place)?;
    writer.key("tools");
    writer.open(b'[');
    for (index, tool) in tools.elements().enumerate() {
        write_tool(tool, &place.element(index), writer)?;
    }
    writer.close(b']');
    Ok(())
}

fn write_tool(tool: Node<'_>, place: &Place<'_>, writer: &mut Writer) -> Result<(), Refusal> {
    of_kind(tool, Kind::Object, "an object", place)?;
    let [kind, function, custom] = tool.pick(["type", "function", "custom"]);
    spelled(kind, &place.member("type"))?;
    let nested = function
        .map(|it| ("function", it))
        .or(custom.map(|it| ("custom", it)));
    let Some((kind, inner)) = nested.filter(|(name, _)| kind.is_some_and(|kind| kind.is(name)))
    else {
        // An upstream's own, or in the form of Responses already.
        writer.raw(tool.bytes());
        return Ok(());
    };
    let inner_place = place.member(kind);
    of_kind(inner, Kind::Object, "an object", &inner_place)?;
    spelled(inner.get("name"), &inner_place.member("name"))?;
    writer.open(b'{');
    writer.member_spelled("type", kind.as_bytes());
    let (mut has_parameters, mut has_strict) = (false, false);
    for (key, value) in inner.members() {
        if value.kind() == Kind::Null || key.is("type") {
            continue;
        }
        has_parameters |= key.is("parameters");
        has_strict |= key.is("strict");
        if kind == "custom" && key.is("format") {
            writer.raw_key(key.bytes());
            write_custom_format(value, writer);
        } else {
            writer.copy_member(key.bytes(), value.bytes());
        }
    }
    if kind == "function" {
        if !has_parameters {
            writer.member("parameters", br#"{"type":"object","properties":{}}"#);
        }
        if !has_strict {
            // Responses would try to be.
            writer.member("strict", b"false");
        }
    }
    for (key, value) in tool.members() {
        if !OWN.iter().any(|own| key.is(own)) {
            writer.copy_member(key.bytes(), value.bytes());
        }
    }
    writer.close(b'}');
    Ok(())
}

fn write_custom_format(format: Node<'_>, writer: &mut Writer) {
    let Some(grammar) = format.get("grammar").filter(|it| it.kind() == Kind::Object) else {
        return writer.raw(format.bytes());
    };
    writer.open(b'{');
    writer.member_spelled("type", b"grammar");
    for (key, value) in grammar.members() {
        if !key.is("type") {
            writer.copy_member(key.bytes(), value.bytes());
        }
    }
    writer.close(b'}');
}

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
