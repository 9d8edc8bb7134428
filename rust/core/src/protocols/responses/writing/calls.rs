//! Calls of functions and custom tools.

use std::sync::Arc;

use super::heading::spelled;
use super::item::{Items, Place};
use super::{Echo, compact, member};
use crate::json::string;
use crate::output::Call as Piece;
use crate::output::identity::{CallPiece, Identities, KnownCall, is_repeated_by};
use crate::protocols::responses::custom_input::CustomInput;
use crate::protocols::responses::text::Run;
use crate::protocols::responses::vocabulary::{Delta, Journal, Status, item_head, raw};

/// What a call costs beside its text, about.
const CALL_COST: usize = 256;

/// The calls of one response. Those that came before another kind of output are closed.
#[derive(Debug)]
pub(super) struct Calls {
    echo: Arc<Echo>,
    list: Vec<Call>,
    identities: Identities,
    /// From here on they are open.
    open_from: usize,
}

#[derive(Debug, Default)]
struct Call {
    id: Vec<u8>,
    name: Vec<u8>,
    /// As they came.
    arguments: Vec<u8>,
    /// What they are if none come.
    fallback: Vec<u8>,
    extra: Option<Vec<u8>>,
    /// The upstream called a custom tool, whose input is free text.
    is_free: bool,
    item: Option<Announced>,
}

/// What the client knows of a call.
#[derive(Debug)]
struct Announced {
    place: Place,
    name: Vec<u8>,
    namespace: Option<Vec<u8>>,
    call_id: Vec<u8>,
    run: Run,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Function,
    Custom(Option<CustomInput>),
}

impl KnownCall for Call {
    fn has_id(&self) -> bool {
        !self.id.is_empty()
    }

    fn name(&self) -> &[u8] {
        &self.name
    }

    fn arguments(&self) -> &[u8] {
        &self.arguments
    }
}

impl Calls {
    pub(super) fn new(echo: Arc<Echo>) -> Self {
        Calls {
            echo,
            list: Vec::new(),
            identities: Identities::default(),
            open_from: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Bytes beside those of the text.
    pub(super) fn held(&self) -> usize {
        self.list.len() * CALL_COST
    }

    /// What comes from now on is open.
    pub(super) fn open(&mut self) {
        self.open_from = self.list.len();
    }

    /// Whether a piece that comes while no call is open adds nothing: it repeats a closed call, or it is empty.
    pub(super) fn know(&self, piece: &Piece<'_>) -> bool {
        let said = CallPiece::from(piece);
        let place = self.identities.place(&self.list, &said);
        match place.and_then(|place| self.list.get(place)) {
            Some(call) => said.arguments.is_empty() || is_repeated_by(call, &said),
            None => said.id.is_empty() && said.name.is_empty() && said.arguments.is_empty(),
        }
    }

    /// Takes in a part of a call.
    pub(super) fn push(
        &mut self,
        piece: &Piece<'_>,
        items: &mut Items,
        journal: &mut Journal,
        out: &mut Vec<u8>,
    ) {
        let said = CallPiece::from(piece);
        let known = self.identities.place(&self.list, &said);
        let is_repeated = known
            .and_then(|place| self.list.get(place))
            .is_some_and(|call| is_repeated_by(call, &said));
        if is_repeated {
            return;
        }
        let place = match known {
            Some(place) if place >= self.open_from => place,
            // More of a call that is closed: what is closed stays as it is, and nothing may be lost.
            Some(place) => {
                if piece.arguments.is_empty() {
                    return;
                }
                let name = self.list.get(place).map(|call| call.name.clone());
                self.begin(name.unwrap_or_default())
            }
            None => self.begin(Vec::new()),
        };
        self.identities.note(&said, place);
        if let Some(call) = self.list.get_mut(place) {
            call.push(piece, &self.echo, items, journal, out);
        }
    }

    /// The place of a new call.
    fn begin(&mut self, name: Vec<u8>) -> usize {
        self.list.push(Call {
            name,
            ..Call::default()
        });
        self.list.len() - 1
    }

    /// Closes those that are open, in the order of their places in the output.
    pub(super) fn close(
        &mut self,
        status: Status,
        items: &mut Items,
        journal: &mut Journal,
        out: &mut Vec<u8>,
    ) {
        let open = self.list.get_mut(self.open_from..).unwrap_or_default();
        for call in &mut *open {
            let says_nothing = call.id.is_empty() && call.name.is_empty();
            call.fall_back(journal, out);
            if !(says_nothing && call.arguments.is_empty()) {
                call.announce(&self.echo, items, journal, out);
            }
        }
        let mut open: Vec<_> = open.iter_mut().filter(|call| call.item.is_some()).collect();
        open.sort_by_key(|call| call.item.as_ref().map(|item| item.place.index));
        for call in open {
            call.close(status, items, journal, out);
        }
        self.open_from = self.list.len();
    }
}

impl Call {
    fn push(
        &mut self,
        piece: &Piece<'_>,
        echo: &Echo,
        items: &mut Items,
        journal: &mut Journal,
        out: &mut Vec<u8>,
    ) {
        if self.id.is_empty() {
            self.id.extend_from_slice(piece.id);
        }
        // A name comes whole, again with each piece, or in parts before the arguments.
        if self.item.is_none() && self.name != piece.name {
            self.name.extend_from_slice(piece.name);
        }
        if let Some(extra) = piece.extra {
            let mut text = Vec::with_capacity(extra.len());
            compact(extra, &mut text);
            self.extra = Some(text);
        }
        if self.fallback.is_empty() {
            self.fallback.extend_from_slice(piece.fallback);
        }
        self.is_free |= piece.custom;
        self.arguments.extend_from_slice(piece.arguments);
        match &mut self.item {
            Some(item) => item.push(piece.arguments, journal, out),
            // An id may come behind the name, but not behind arguments.
            None if self.name.is_empty() => {}
            None if self.id.is_empty() && self.arguments.is_empty() => {}
            None => self.announce(echo, items, journal, out),
        }
    }

    /// Nothing more comes: a call without arguments has what was said to stand for them.
    fn fall_back(&mut self, journal: &mut Journal, out: &mut Vec<u8>) {
        if !self.arguments.is_empty() {
            return;
        }
        self.arguments = std::mem::take(&mut self.fallback);
        if let Some(item) = &mut self.item {
            item.push(&self.arguments, journal, out);
        }
    }

    fn announce(
        &mut self,
        echo: &Echo,
        items: &mut Items,
        journal: &mut Journal,
        out: &mut Vec<u8>,
    ) {
        if self.item.is_some() {
            return;
        }
        let function = string::decode(&self.name);
        let stands_for_custom = || echo.custom_tools.contains(&*function);
        let (prefix, event, kind) = if self.is_free {
            let event = "response.custom_tool_call_input.delta";
            ("ctc_", event, Kind::Custom(None))
        } else if stands_for_custom() {
            let event = "response.custom_tool_call_input.delta";
            ("ctc_", event, Kind::Custom(Some(CustomInput::default())))
        } else {
            let event = "response.function_call_arguments.delta";
            ("fc_", event, Kind::Function)
        };
        let place = items.place(prefix);
        let call_id = if self.id.is_empty() {
            items.id("call_", place.index)
        } else {
            self.id.clone()
        };
        let mut members = Vec::with_capacity(128);
        place.members(&mut members);
        // The client knows a tool in a namespace by both names.
        let (name, namespace) = match echo.namespaced.get(&*function) {
            Some(tool) => (spelled(&tool.name), Some(spelled(&tool.namespace))),
            None => (self.name.clone(), None),
        };
        let mut item = Announced {
            place,
            name,
            namespace,
            call_id,
            run: Run::new(Delta::new(event, &members)),
            kind,
        };
        items.announce(&item.place, journal, out, |out| {
            self.write(&item, b"", Status::InProgress, out);
        });
        item.push(&self.arguments, journal, out);
        self.item = Some(item);
    }

    fn close(
        &mut self,
        status: Status,
        items: &mut Items,
        journal: &mut Journal,
        out: &mut Vec<u8>,
    ) {
        let Some(mut item) = self.item.take() else {
            return;
        };
        let text = item.finish(journal, out);
        let (event, name) = match item.kind {
            Kind::Function => ("response.function_call_arguments.done", "arguments"),
            Kind::Custom(_) => ("response.custom_tool_call_input.done", "input"),
        };
        journal.event(event, out, |out| {
            item.place.members(out);
            member(name, &text, out);
        });
        items.close(&item.place, journal, out, |out| {
            self.write(&item, &text, status, out);
        });
    }

    fn write(&self, item: &Announced, text: &[u8], status: Status, out: &mut Vec<u8>) {
        let (kind, name) = match item.kind {
            Kind::Function => ("function_call", "arguments"),
            Kind::Custom(_) => ("custom_tool_call", "input"),
        };
        item_head(kind, &item.place.id, status, out);
        member("call_id", &item.call_id, out);
        member("name", &item.name, out);
        if let Some(namespace) = &item.namespace {
            member("namespace", namespace, out);
        }
        member(name, text, out);
        if let Some(extra) = &self.extra {
            raw("extra_content", extra, out);
        }
        out.push(b'}');
    }
}

impl Announced {
    fn push(&mut self, arguments: &[u8], journal: &mut Journal, out: &mut Vec<u8>) {
        let mut input = Vec::new();
        let text = match &mut self.kind {
            Kind::Custom(Some(custom)) => {
                custom.push(arguments, &mut input);
                &*input
            }
            Kind::Function | Kind::Custom(None) => arguments,
        };
        if !text.is_empty() {
            self.run.push(text, None, journal, out);
        }
    }

    /// The whole arguments or input.
    fn finish(&mut self, journal: &mut Journal, out: &mut Vec<u8>) -> Vec<u8> {
        if let Kind::Custom(Some(custom)) = &mut self.kind {
            let mut input = Vec::new();
            custom.finish(&mut input);
            if !input.is_empty() {
                self.run.push(&input, None, journal, out);
            }
        }
        self.run.finish(journal, out)
    }
}
