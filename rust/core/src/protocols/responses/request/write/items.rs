//! The turns as the items of an input.
//!
//! What the model put out in one turn becomes its reasoning, its texts and its calls, an item each, in the turn's
//! order. Texts that no call separates are one message.

use std::collections::BTreeSet;

use super::{ResponsesTarget, beyond};
use crate::api::Api;
use crate::input::block::says_error;
use crate::input::left_out::LeftOut;
use crate::input::names::cut;
use crate::input::{
    Block, Call, Content, File, Image, Media, Payload, Place, Refusal, Role, Scope, Seal, Turn,
};
use crate::json::scan::Kind;
use crate::json::writer::Writer;

/// The longest id of a call, and the longest name of a function, that OpenAI takes.
pub(super) const MAX_NAME: usize = 64;

/// Items as they are written.
pub(super) struct Items<'t, 'w> {
    out: &'w mut Writer,
    target: &'t ResponsesTarget,
    /// Ids of calls of custom tools, spelled: their outputs are items of another type.
    custom_calls: BTreeSet<Vec<u8>>,
    /// Items that had to get an id.
    ids: usize,
    left_out: LeftOut,
}

/// What the model said and is not written yet.
#[derive(Default)]
struct Said<'c> {
    texts: Vec<&'c [u8]>,
    refusals: Vec<&'c [u8]>,
}

impl<'t, 'w> Items<'t, 'w> {
    /// Items that will be the next value of `out`.
    pub(super) fn new(target: &'t ResponsesTarget, out: &'w mut Writer) -> Self {
        out.open(b'[');
        Items {
            out,
            target,
            custom_calls: BTreeSet::new(),
            ids: 0,
            left_out: LeftOut::default(),
        }
    }

    /// Ends the items. Gives where what was left out stands.
    pub(super) fn finish(self) -> LeftOut {
        self.out.close(b']');
        self.left_out
    }

    /// One turn.
    pub(super) fn turn(&mut self, turn: &Turn<'_>) -> Result<(), Refusal> {
        if turn.named {
            self.left_out.add(Place::At(turn.spot).member("name"));
        }
        if turn.role == Role::Assistant {
            self.reply(turn)
        } else {
            self.message(turn)
        }
    }

    /// Outputs of calls go first, as they must follow their calls.
    fn message(&mut self, turn: &Turn<'_>) -> Result<(), Refusal> {
        let mut others = Vec::new();
        let mut has_outputs = false;
        for block in &turn.blocks {
            match &block.content {
                Content::Result {
                    id,
                    failed,
                    content,
                } => {
                    has_outputs = true;
                    self.output(id, *failed, content, block)?;
                }
                Content::Own(own) if own.scope == Scope::Trace => {
                    self.left_out.add_kind(block.spot, &own.kind);
                }
                _ => others.push(block),
            }
        }
        if has_outputs && others.is_empty() {
            return Ok(());
        }
        self.out.open(b'{');
        let role = turn.role.word();
        self.out.member_spelled("role", role.as_bytes());
        self.out.key("content");
        match others.as_slice() {
            [block] if block.is_whole_content() => self.whole(block),
            blocks => {
                self.out.open(b'[');
                for block in blocks {
                    self.part(block)?;
                }
                self.out.close(b']');
            }
        }
        self.out.close(b'}');
        Ok(())
    }

    /// A content that the client wrote as one string.
    fn whole(&mut self, block: &Block<'_>) {
        if let Content::Text(text) = &block.content {
            self.out.spelled(text);
        }
    }

    /// A part of a content that goes to the model.
    fn part(&mut self, block: &Block<'_>) -> Result<(), Refusal> {
        let place = Place::At(block.spot);
        match &block.content {
            Content::Text(text) | Content::Refusal(text) => self.text("input_text", "text", text),
            Content::Image(image) => self.image(image, &place)?,
            Content::File(file) => self.file(file, &place)?,
            // The same in both protocols, or a vendor's own.
            Content::Audio(part) => self.out.raw(part.bytes()),
            Content::Own(own) if own.scope == Scope::Part && own.api != Api::Messages => {
                self.out.raw(own.json.bytes());
            }
            Content::Own(own) if own.scope == Scope::Trace => {
                self.left_out.add_kind(block.spot, &own.kind);
            }
            Content::Own(_) => return Err(beyond(&place)),
            Content::Thinking { .. } | Content::Call(_) | Content::Result { .. } => {}
        }
        Ok(())
    }

    fn image(&mut self, image: &Image<'_>, place: &Place<'_>) -> Result<(), Refusal> {
        self.out.open(b'{');
        self.out.member_spelled("type", b"input_image");
        match &image.media {
            Media::Url(url) => self.out.member_spelled("image_url", url),
            Media::Base64 { media_type, data } => {
                let media_type = media_type.as_deref().unwrap_or(b"image/png");
                self.out.key("image_url");
                let parts = [b"data:", media_type, b";base64,", data];
                self.out.spelled_parts(&parts);
            }
            Media::Text(_) | Media::Blocks(_) | Media::Id(_) => return Err(beyond(place)),
        }
        let detail = image.detail.map_or(&b"\"auto\""[..], |it| it.bytes());
        self.out.member("detail", detail);
        self.out.close(b'}');
        Ok(())
    }

    fn file(&mut self, file: &File<'_>, place: &Place<'_>) -> Result<(), Refusal> {
        let name = file.name.as_deref();
        if let Some(object) = file.object {
            self.out.open(b'{');
            self.out.member_spelled("type", b"input_file");
            for (key, value) in object.members() {
                if !key.is("type") {
                    self.out.copy_member(key.bytes(), value.bytes());
                }
            }
            self.out.close(b'}');
            return Ok(());
        }
        match &file.media {
            Media::Base64 { media_type, data } => {
                let name = name.unwrap_or(b"document.pdf");
                let media_type = media_type.as_deref().unwrap_or(b"application/pdf");
                self.out.open(b'{');
                self.out.member_spelled("type", b"input_file");
                self.out.member_spelled("filename", name);
                self.out.key("file_data");
                let parts = [b"data:", media_type, b";base64,", data];
                self.out.spelled_parts(&parts);
                self.out.close(b'}');
            }
            Media::Url(url) => {
                self.out.open(b'{');
                self.out.member_spelled("type", b"input_file");
                self.out.member_spelled("file_url", url);
                self.out.close(b'}');
            }
            Media::Text(text) => {
                for text in name.into_iter().chain([text.as_ref()]) {
                    self.text("input_text", "text", text);
                }
            }
            Media::Blocks(blocks) => {
                if let Some(name) = name {
                    self.text("input_text", "text", name);
                }
                for block in blocks {
                    self.part(block)?;
                }
            }
            Media::Id(_) => return Err(beyond(place)),
        }
        Ok(())
    }

    fn text(&mut self, kind: &str, name: &str, text: &[u8]) {
        self.out.open(b'{');
        self.out.member_spelled("type", kind.as_bytes());
        self.out.member_spelled(name, text);
        self.out.close(b'}');
    }

    fn reply(&mut self, turn: &Turn<'_>) -> Result<(), Refusal> {
        let mut said = Said::default();
        for block in &turn.blocks {
            match &block.content {
                Content::Text(text) => said.texts.push(text),
                Content::Refusal(text) => said.refusals.push(text),
                Content::Thinking { text, seal } => {
                    self.say(&mut said);
                    self.reasoning(text, seal.as_ref(), block);
                }
                Content::Call(call) => {
                    self.say(&mut said);
                    self.call(call);
                }
                Content::Own(own) if own.scope == Scope::Trace => {
                    self.left_out.add_kind(block.spot, &own.kind);
                }
                _ => return Err(beyond(&Place::At(block.spot))),
            }
        }
        self.say(&mut said);
        Ok(())
    }

    fn reasoning(&mut self, text: &[u8], seal: Option<&Seal<'_>>, block: &Block<'_>) {
        if let Some(item) = seal.and_then(|seal| seal.made_by(Api::Responses)) {
            // It made this itself, and takes nothing else back.
            return self.out.raw(&item);
        }
        if !self.target.takes_reasoning || text.is_empty() {
            let kind = block.source.and_then(|source| source.get("type")?.decode());
            return match kind {
                Some(kind) => self.left_out.add_kind(block.spot, &kind),
                None => self.left_out.add(block.spot),
            };
        }
        self.out.open(b'{');
        self.out.member_spelled("type", b"reasoning");
        self.id("rs_");
        self.out.member("summary", b"[]");
        self.out.key("content");
        self.out.open(b'[');
        self.text("reasoning_text", "text", text);
        self.out.close(b']');
        self.out.close(b'}');
    }

    /// A made-up id for an item that must have one; the upstream has never seen it.
    fn id(&mut self, prefix: &str) {
        self.out.key("id");
        self.out.text(&format!("{prefix}{}", self.ids));
        self.ids += 1;
    }

    /// Writes what was said: a string where there is no refusal, since a message with parts of the assistant's own must
    /// have an id.
    fn say(&mut self, said: &mut Said<'_>) {
        let Said { texts, refusals } = std::mem::take(said);
        if texts.is_empty() && refusals.is_empty() {
            return;
        }
        self.out.open(b'{');
        if refusals.is_empty() {
            self.out.member_spelled("role", b"assistant");
            self.out.key("content");
            self.out.spelled_parts(&texts);
        } else {
            self.out.member_spelled("type", b"message");
            self.id("msg_");
            self.out.member_spelled("status", b"completed");
            self.out.member_spelled("role", b"assistant");
            self.out.key("content");
            self.out.open(b'[');
            for text in texts {
                self.out.open(b'{');
                self.out.member_spelled("type", b"output_text");
                self.out.member_spelled("text", text);
                self.out.member("annotations", b"[]");
                self.out.close(b'}');
            }
            for refusal in refusals {
                self.text("refusal", "refusal", refusal);
            }
            self.out.close(b']');
        }
        self.out.close(b'}');
    }

    fn call(&mut self, call: &Call<'_>) {
        let (kind, payload) = match call.custom {
            true => ("custom_tool_call", "input"),
            false => ("function_call", "arguments"),
        };
        if call.custom {
            self.custom_calls.insert(call.id.to_vec());
        }
        self.out.open(b'{');
        self.out.member_spelled("type", kind.as_bytes());
        self.out.member_spelled("call_id", &cut(&call.id, MAX_NAME));
        self.out.member_spelled("name", &cut(&call.name, MAX_NAME));
        self.out.key(payload);
        match &call.input {
            Payload::Text(text) => self.out.spelled(text),
            Payload::Object(object) => self.out.quoted(object.bytes()),
        }
        if let Some(extra) = call.extra {
            self.out.member("extra_content", extra.bytes());
        }
        self.out.close(b'}');
    }

    fn output(
        &mut self,
        id: &[u8],
        failed: bool,
        content: &[Block<'_>],
        block: &Block<'_>,
    ) -> Result<(), Refusal> {
        let kind: &[u8] = if self.custom_calls.contains(id) {
            b"custom_tool_call_output"
        } else {
            b"function_call_output"
        };
        self.out.open(b'{');
        self.out.member_spelled("type", kind);
        self.out.member_spelled("call_id", &cut(id, MAX_NAME));
        self.out.key("output");
        let given = block.source.and_then(|source| source.get("content"));
        let is_list = given.is_some_and(|given| given.kind() == Kind::Array);
        match content {
            [] if !is_list || failed => self.out.spelled(if failed { b"Error" } else { b"" }),
            [text] if text.is_whole_content() => match &text.content {
                Content::Text(text) if failed => {
                    self.out.spelled_parts(&[error_before(text), text]);
                }
                _ => self.whole(text),
            },
            blocks => {
                self.out.open(b'[');
                if failed {
                    self.text("input_text", "text", b"Error:");
                }
                for block in blocks {
                    self.part(block)?;
                }
                self.out.close(b']');
            }
        }
        self.out.close(b'}');
        Ok(())
    }
}

/// What stands before the output of a call that failed, as the protocol has no member for it: nothing where the output
/// says so itself.
fn error_before(text: &[u8]) -> &'static [u8] {
    match (says_error(text), text.is_empty()) {
        (true, _) => b"",
        (false, true) => b"Error",
        (false, false) => b"Error: ",
    }
}
