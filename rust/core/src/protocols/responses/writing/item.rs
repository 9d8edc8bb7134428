//! Items of a response: messages and reasoning, and what all items share: ids, places, and the list of those that are
//! closed.

use crate::api::Api;
use crate::input::seal;
use crate::json::scan::{Kind, MAX_DEPTH, Members};
use crate::json::splice::Splice;
use crate::output::{Phase, Sealed, Spelled};
use crate::protocols::responses::text::Run;
use crate::protocols::responses::vocabulary::{
    Delta, Journal, PartKind, Status, count, item_head, key, list, number, raw, string as member,
};

/// The items of one response.
#[derive(Debug)]
pub(super) struct Items {
    /// What is behind the prefix of the response's id, spelled: the same behind each item's.
    suffix: Vec<u8>,
    count: u64,
    last_was_reasoning: bool,
    /// Those that are closed, with commas between them, in the order of their places.
    closed: Vec<u8>,
}

/// An item's id and its place in the output.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) id: Vec<u8>,
    pub(super) index: u64,
}

impl Place {
    /// `,"item_id":…,"output_index":…`
    pub(super) fn members(&self, out: &mut Vec<u8>) {
        member("item_id", &self.id, out);
        count("output_index", self.index, out);
    }
}

impl Items {
    pub(super) fn new(response_id: &str) -> Self {
        let suffix = response_id.strip_prefix("resp_").unwrap_or(response_id);
        // An id is letters and digits; what else it might hold must not end the string that it stands in.
        let plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        Items {
            suffix: suffix.bytes().filter(plain).collect(),
            count: 0,
            last_was_reasoning: false,
            closed: Vec::new(),
        }
    }

    /// How many have been opened.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The item that was opened last, be it closed or not, is reasoning.
    pub(super) fn last_was_reasoning(&self) -> bool {
        self.last_was_reasoning
    }

    pub(super) fn closed(&self) -> &[u8] {
        &self.closed
    }

    /// An id that no other item of any response has.
    pub(super) fn id(&self, prefix: &str, index: u64) -> Vec<u8> {
        let mut id = prefix.as_bytes().to_vec();
        id.extend_from_slice(&self.suffix);
        id.extend_from_slice(format!("{index:04x}").as_bytes());
        id
    }

    /// The next item's place.
    pub(super) fn place(&mut self, prefix: &str) -> Place {
        let index = self.count;
        self.count += 1;
        self.last_was_reasoning = false;
        Place {
            id: self.id(prefix, index),
            index,
        }
    }

    /// Opens an item that can hold a part of this kind.
    pub(super) fn open(
        &mut self,
        kind: PartKind,
        phase: Option<Phase>,
        journal: &mut Journal,
        out: &mut Vec<u8>,
    ) -> OpenItem {
        let is_message = is_messages(kind);
        let place = self.place(if is_message { "msg_" } else { "rs_" });
        self.last_was_reasoning = !is_message;
        let item = OpenItem {
            place,
            is_message,
            phase,
            parts: Vec::new(),
            summaries: Vec::new(),
            counts: [0, 0],
            encrypted: None,
            sealed_by: None,
            blocks: Vec::new(),
            part: None,
        };
        self.announce(&item.place, journal, out, |out| {
            item.write(Status::InProgress, out);
        });
        item
    }

    /// The event that opens an item.
    pub(super) fn announce(
        &self,
        place: &Place,
        journal: &mut Journal,
        out: &mut Vec<u8>,
        item: impl FnOnce(&mut Vec<u8>),
    ) {
        journal.event("response.output_item.added", out, |out| {
            count("output_index", place.index, out);
            key("item", out);
            item(out);
        });
    }

    /// The event that closes an item, which then is part of the output.
    pub(super) fn close(
        &mut self,
        place: &Place,
        journal: &mut Journal,
        out: &mut Vec<u8>,
        item: impl FnOnce(&mut Vec<u8>),
    ) {
        if !self.closed.is_empty() {
            self.closed.push(b',');
        }
        let start = self.closed.len();
        item(&mut self.closed);
        journal.event("response.output_item.done", out, |out| {
            count("output_index", place.index, out);
            raw("item", self.closed.get(start..).unwrap_or_default(), out);
        });
    }

    /// An item that comes whole. No item is done when it begins.
    pub(super) fn pass(&mut self, item: &[u8], journal: &mut Journal, out: &mut Vec<u8>) {
        let place = self.place("");
        let status = Members::at(item, 0, MAX_DEPTH)
            .ok()
            .and_then(|members| {
                members
                    .map_while(Result::ok)
                    .find(|m| m.key_is(item, "status"))
            })
            .map(|member| member.value)
            .filter(|value| value.kind == Kind::String);
        let mut begun = Splice::new();
        if let Some(status) = status {
            begun.replace(status.range(), &b"\"in_progress\""[..]);
        }
        self.announce(&place, journal, out, |out| begun.apply(item, out));
        self.close(&place, journal, out, |out| out.extend_from_slice(item));
    }
}

fn is_messages(kind: PartKind) -> bool {
    matches!(kind, PartKind::Text | PartKind::Refusal)
}

/// A message or reasoning that is open.
#[derive(Debug)]
pub(super) struct OpenItem {
    place: Place,
    is_message: bool,
    phase: Option<Phase>,
    /// Parts that are closed, with commas between them.
    parts: Vec<u8>,
    summaries: Vec<u8>,
    /// How many of either were opened.
    counts: [u64; 2],
    encrypted: Option<Vec<u8>>,
    /// Who has sealed what is in it.
    sealed_by: Option<Api>,
    /// What has to come back to them, with commas between: blocks of the Messages interface, or entries of
    /// `reasoning_details`.
    blocks: Vec<u8>,
    part: Option<OpenPart>,
}

/// A part that is open.
#[derive(Debug)]
struct OpenPart {
    kind: PartKind,
    /// `,"item_id":…,"output_index":…,"content_index":…`
    place: Vec<u8>,
    run: Run,
    logprobs: Vec<u8>,
    annotations: Vec<u8>,
    annotation_count: u64,
}

impl OpenItem {
    /// Whether a piece of this kind belongs here.
    #[inline]
    pub(super) fn takes(&self, kind: PartKind, phase: Option<Phase>) -> bool {
        let goes_on = match &self.part {
            Some(part) => !self.is_message || part.kind == kind,
            None => true,
        };
        self.is_message == is_messages(kind) && goes_on && (phase.is_none() || phase == self.phase)
    }

    /// Whether what such an upstream sealed has a place here still: all blocks of a turn belong together, but of
    /// Responses each item is one.
    pub(super) fn takes_seal(&self, api: Api) -> bool {
        self.sealed_by
            .is_none_or(|sealed_by| sealed_by == api && api != Api::Responses)
    }

    /// Takes in reasoning that only its maker can read, or its signature of the part that is open.
    pub(super) fn seal(&mut self, sealed: &Sealed<'_>, journal: &mut Journal, out: &mut Vec<u8>) {
        self.sealed_by = Some(sealed.api);
        if sealed.api == Api::Responses {
            self.encrypted = Some(sealed.data.to_vec());
            return;
        }
        if !self.blocks.is_empty() {
            self.blocks.push(b',');
        }
        let text = self.part.as_ref().map_or(&[][..], |part| part.run.text());
        sealed.whole(text, &mut self.blocks);
        self.close_part(journal, out);
    }

    /// Says `text` in the part that is open, or in the next one.
    #[inline]
    pub(super) fn say(
        &mut self,
        kind: PartKind,
        text: Spelled<'_>,
        logprobs: Option<&[u8]>,
        journal: &mut Journal,
        out: &mut Vec<u8>,
    ) {
        let part = self.part(kind, journal, out);
        if let Some(logprobs) = logprobs {
            if !part.logprobs.is_empty() {
                part.logprobs.push(b',');
            }
            part.logprobs.extend_from_slice(logprobs);
        }
        if !text.is_empty() || logprobs.is_some() {
            part.run.push(text, logprobs, journal, out);
        }
    }

    pub(super) fn annotate(&mut self, annotation: &[u8], journal: &mut Journal, out: &mut Vec<u8>) {
        let part = self.part(PartKind::Text, journal, out);
        journal.event("response.output_text.annotation.added", out, |out| {
            out.extend_from_slice(&part.place);
            count("annotation_index", part.annotation_count, out);
            raw("annotation", annotation, out);
        });
        part.annotation_count += 1;
        if !part.annotations.is_empty() {
            part.annotations.push(b',');
        }
        part.annotations.extend_from_slice(annotation);
    }

    /// The part of this kind that is open, or a new one.
    #[inline]
    fn part(&mut self, kind: PartKind, journal: &mut Journal, out: &mut Vec<u8>) -> &mut OpenPart {
        if self.part.as_ref().is_some_and(|part| part.kind != kind) {
            self.close_part(journal, out);
        }
        let (place, counts) = (&self.place, &mut self.counts);
        self.part
            .get_or_insert_with(|| OpenPart::open(kind, place, counts, journal, out))
    }

    pub(super) fn close_part(&mut self, journal: &mut Journal, out: &mut Vec<u8>) {
        if let Some(part) = self.part.take() {
            let closed = match part.kind {
                PartKind::Summary => &mut self.summaries,
                _ => &mut self.parts,
            };
            part.close(closed, journal, out);
        }
    }

    pub(super) fn close(
        mut self,
        status: Status,
        items: &mut Items,
        journal: &mut Journal,
        out: &mut Vec<u8>,
    ) {
        self.close_part(journal, out);
        items.close(&self.place, journal, out, |out| self.write(status, out));
    }

    fn write(&self, status: Status, out: &mut Vec<u8>) {
        if self.is_message {
            item_head("message", &self.place.id, status, out);
            member("role", b"assistant", out);
            match self.phase {
                Some(Phase::Commentary) => member("phase", b"commentary", out),
                Some(Phase::FinalAnswer) => member("phase", b"final_answer", out),
                None => {}
            }
        } else {
            item_head("reasoning", &self.place.id, status, out);
            list("summary", &self.summaries, out);
            if let Some(data) = &self.encrypted {
                member("encrypted_content", data, out);
            } else if let Some(api) = self.sealed_by {
                let mut sealed = Vec::new();
                seal::write(api, &[b"[", &*self.blocks, b"]"].concat(), &mut sealed);
                member("encrypted_content", &sealed, out);
            }
        }
        list("content", &self.parts, out);
        out.push(b'}');
    }
}

impl OpenPart {
    fn open(
        kind: PartKind,
        item: &Place,
        [contents, summaries]: &mut [u64; 2],
        journal: &mut Journal,
        out: &mut Vec<u8>,
    ) -> OpenPart {
        let index = match kind {
            PartKind::Summary => summaries,
            _ => contents,
        };
        let mut place = Vec::with_capacity(128);
        item.members(&mut place);
        key(kind.index(), &mut place);
        number(*index, &mut place);
        *index += 1;
        let part = OpenPart {
            kind,
            run: Run::new(Delta::new(&[kind.stem(), ".delta"].concat(), &place)),
            place,
            logprobs: Vec::new(),
            annotations: Vec::new(),
            annotation_count: 0,
        };
        part.frame("added", b"", journal, out);
        part
    }

    /// The event that opens or closes the part.
    fn frame(&self, what: &str, text: &[u8], journal: &mut Journal, out: &mut Vec<u8>) {
        let event = [self.kind.frame(), ".", what].concat();
        journal.event(&event, out, |out| {
            out.extend_from_slice(&self.place);
            key("part", out);
            self.kind
                .write(text, &self.annotations, &self.logprobs, out);
        });
    }

    fn close(mut self, closed: &mut Vec<u8>, journal: &mut Journal, out: &mut Vec<u8>) {
        let text = self.run.finish(journal, out);
        let event = [self.kind.stem(), ".done"].concat();
        journal.event(&event, out, |out| {
            out.extend_from_slice(&self.place);
            member(self.kind.whole(), &text, out);
            if self.kind == PartKind::Text {
                list("logprobs", &self.logprobs, out);
            }
        });
        self.frame("done", &text, journal, out);
        if !closed.is_empty() {
            closed.push(b',');
        }
        self.kind
            .write(&text, &self.annotations, &self.logprobs, closed);
    }
}
