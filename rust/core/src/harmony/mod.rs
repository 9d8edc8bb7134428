//! The text of gpt-oss models as they write it, with the tokens of OpenAI's Harmony format in it, decoded into pieces
//! of output.
//!
//! ```text
//! <|channel|>analysis<|message|>Weather: call the tool.<|end|>
//! <|start|>assistant to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{"city":"Rome"}<|call|>
//! ```
//!
//! | header | becomes |
//! | --- | --- |
//! | channel `analysis` | reasoning |
//! | channel `final` | text, the answer |
//! | channel `commentary` | text, commentary |
//! | a recipient, `to=functions.NAME`, in any part and on any channel | a call of the function NAME |
//! | another recipient: `to=browser.search` | a call of the function of that whole name |
//! | `to=python` | a call of the custom tool `python`: its input is code, no JSON |
//! | no channel, or an unknown one | text |
//!
//! A prompt ends in `<|start|>assistant`, so a reply begins inside a header; it may also begin with a header of its
//! own, with part of one (`analysis` or ` to=…`), or with text where the prompt went further. Tokens may be missing: a
//! message ends where the next begins, or with the reply. A header without `<|message|>` has as its message what
//! follows its own words, as openai-harmony reads it when it is not strict. `<|message|>` and `<|constrain|>` within a
//! message are text, and so are `<|start|>` and `<|channel|>` where no header follows them. A header has at most 512
//! bytes and 8 tokens: what is longer was none.
//!
//! Format: <https://github.com/openai/harmony/blob/main/docs/format.md>.

mod header;
mod marker;
mod reading;
mod spelling;

use crate::output::{Call, Piece, Reasoning, Text};
use header::{Header, Kind, Taken};
use marker::{Found, Marker, Unit, find};

pub use reading::HarmonyChunks;
pub use spelling::Speller;

/// Makes pieces of harmony text that is spelled as between the quotes of a JSON string, cut anywhere.
///
/// ```
/// use sluicegate_core::harmony::Decoder;
/// use sluicegate_core::output::{Phase, Piece, Reasoning, Text};
///
/// let mut decoder = Decoder::default();
/// let mut seen = Vec::new();
/// for part in [&b"<|chan"[..], b"nel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi!"] {
///     decoder.feed(part, &mut |piece| match piece {
///         Piece::Reasoning(Reasoning::Text(text)) => seen.push(("thinks", text.to_vec())),
///         Piece::Text(Text { text, phase: Some(Phase::FinalAnswer), .. }) => seen.push(("says", text.to_vec())),
///         _ => {}
///     });
/// }
/// decoder.finish(&mut |_| {});
/// assert_eq!(seen, [("thinks", b"Hm.".to_vec()), ("says", b"Hi!".to_vec())]);
/// ```
#[derive(Debug)]
pub struct Decoder {
    state: DecoderState,
    /// What may be the beginning of a token.
    held: Vec<u8>,
    calls: u64,
    /// No message has ended yet.
    is_first: bool,
}

#[derive(Debug)]
enum DecoderState {
    /// Before a message, or in its header.
    Header(Header),
    /// In a message; the flag is set once some of its text has been given.
    Body(Kind, bool),
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder {
            state: DecoderState::Header(Header::default()),
            held: Vec::new(),
            calls: 0,
            is_first: true,
        }
    }
}

impl Decoder {
    /// Takes the next part of the text. What cannot be understood yet is kept back.
    pub fn feed(&mut self, text: &[u8], out: &mut dyn FnMut(Piece<'_>)) {
        if self.held.is_empty() {
            let kept = self.take(text, out);
            self.held
                .extend_from_slice(text.get(kept..).unwrap_or_default());
        } else {
            let mut joined = std::mem::take(&mut self.held);
            joined.extend_from_slice(text);
            let kept = self.take(&joined, out);
            joined.drain(..kept);
            self.held = joined;
        }
    }

    /// The end of the text: the last message ends, though no token may say so. The decoder is then as new, but for the
    /// number of calls.
    pub fn finish(&mut self, out: &mut dyn FnMut(Piece<'_>)) {
        let held = std::mem::take(&mut self.held);
        self.text(whole_letters(&held), out);
        self.end(self.is_first, out);
        self.is_first = true;
    }

    /// Calls of tools so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Takes `text` up to what it returns.
    fn take(&mut self, text: &[u8], out: &mut dyn FnMut(Piece<'_>)) -> usize {
        let mut at = 0;
        loop {
            let rest = text.get(at..).unwrap_or_default();
            match find(rest) {
                Found::Nothing => {
                    self.text(rest, out);
                    return text.len();
                }
                Found::Perhaps(start) => {
                    self.text(rest.get(..start).unwrap_or_default(), out);
                    return at + start;
                }
                Found::Marker { start, end, marker } => {
                    self.text(rest.get(..start).unwrap_or_default(), out);
                    self.mark(marker, rest.get(start..end).unwrap_or_default(), out);
                    at += end;
                }
            }
        }
    }

    fn text(&mut self, text: &[u8], out: &mut dyn FnMut(Piece<'_>)) {
        if text.is_empty() {
            return;
        }
        match &mut self.state {
            DecoderState::Body(kind, said) => {
                say(kind, text, self.calls, out);
                *said = true;
            }
            DecoderState::Header(header) => {
                if let Taken::Spoilt(taken) = header.push(text) {
                    self.give_up(out);
                    self.text(text.get(taken..).unwrap_or_default(), out);
                }
            }
        }
    }

    fn mark(&mut self, marker: Marker, token: &[u8], out: &mut dyn FnMut(Piece<'_>)) {
        let header = match &mut self.state {
            DecoderState::Body(kind, said) => {
                match marker {
                    Marker::End | Marker::Call | Marker::Return => self.end(false, out),
                    Marker::Message | Marker::Constrain => self.text(token, out),
                    Marker::Start | Marker::Channel => {
                        let inside = Some((kind.clone(), *said));
                        self.state = DecoderState::Header(Header::begun(marker, token, inside));
                    }
                }
                return;
            }
            DecoderState::Header(header) => header,
        };
        let joins = matches!(marker, Marker::Channel | Marker::Constrain);
        if !header.is_possible(true) || joins && !header.has_room(token) {
            self.give_up(out);
            return self.mark(marker, token, out);
        }
        match marker {
            Marker::Channel | Marker::Constrain => header.mark(marker, token),
            Marker::Message => {
                let kind = header.kind();
                self.close_inside(out);
                self.begin(kind, out);
            }
            Marker::End | Marker::Call | Marker::Return => self.end(false, out),
            Marker::Start => {
                self.end(false, out);
                self.state = DecoderState::Header(Header::begun(marker, token, None));
            }
        }
    }

    /// What was taken for a header is none: it is text.
    fn give_up(&mut self, out: &mut dyn FnMut(Piece<'_>)) {
        let DecoderState::Header(header) = &mut self.state else {
            return;
        };
        let header = std::mem::take(header);
        let text = match (&header.inside, header.is_unmarked()) {
            (Some((kind, said)), _) => {
                self.state = DecoderState::Body(kind.clone(), *said);
                header.raw()
            }
            (None, true) => {
                self.state = DecoderState::Body(Kind::Text(None), false);
                header.raw()
            }
            (None, false) => {
                self.begin(header.kind(), out);
                header.rest()
            }
        };
        self.text(text, out);
    }

    /// A message begins.
    fn begin(&mut self, kind: Kind, out: &mut dyn FnMut(Piece<'_>)) {
        let mut said = false;
        if let Kind::Call { name, custom } = &kind {
            out(Piece::Call(Call {
                index: Some(self.calls),
                name,
                custom: *custom,
                ..Call::default()
            }));
            self.calls += 1;
            said = true;
        }
        self.state = DecoderState::Body(kind, said);
    }

    /// The message ends that a header stands inside of.
    fn close_inside(&mut self, out: &mut dyn FnMut(Piece<'_>)) {
        if let DecoderState::Header(header) = &mut self.state
            && let Some((_, true)) = header.inside.take()
        {
            out(Piece::Break);
        }
    }

    /// What is open ends, a header without a message too. White space by itself is a message only where `keeps_space`.
    fn end(&mut self, keeps_space: bool, out: &mut dyn FnMut(Piece<'_>)) {
        if let DecoderState::Header(header) = &mut self.state {
            let header = std::mem::take(header);
            if let Some((_, true)) = header.inside {
                self.is_first = false;
                out(Piece::Break);
            }
            let (kind, rest) = if header.is_unmarked() {
                (Kind::Text(None), header.raw())
            } else {
                (header.kind(), header.rest())
            };
            let is_space = header.is_unmarked() && !keeps_space && header.is_blank();
            // Half a header of a call is no call.
            let is_broken = matches!(kind, Kind::Call { .. }) && !rest.starts_with(b"{");
            if rest.is_empty() || is_space || is_broken {
                self.state = DecoderState::Header(Header::default());
                return;
            }
            self.begin(kind, out);
            self.text(rest, out);
        }
        if let DecoderState::Body(_, true) = self.state {
            out(Piece::Break);
        }
        self.is_first = false;
        self.state = DecoderState::Header(Header::default());
    }
}

/// `held` without the half escape that it may end in.
fn whole_letters(held: &[u8]) -> &[u8] {
    let mut at = 0;
    loop {
        match marker::unit(held, at) {
            Unit::Ascii(_, len) | Unit::Other(len) => at += len,
            Unit::Incomplete | Unit::End => return held.get(..at).unwrap_or_default(),
        }
    }
}

fn say(kind: &Kind, text: &[u8], calls: u64, out: &mut dyn FnMut(Piece<'_>)) {
    out(match kind {
        Kind::Reasoning => Piece::Reasoning(Reasoning::Text(text)),
        Kind::Text(phase) => Piece::Text(Text {
            text,
            phase: *phase,
            ..Text::default()
        }),
        Kind::Call { custom, .. } => Piece::Call(Call {
            index: Some(calls.saturating_sub(1)),
            arguments: text,
            custom: *custom,
            ..Call::default()
        }),
    });
}

#[cfg(test)]
mod tests;
