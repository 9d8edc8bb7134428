//! A message's header: what stands between the tokens in front of `<|message|>`.

use std::ops::Range;

use super::marker::{Marker, Unit, unit};
use crate::json::string;
use crate::output::Phase;

/// Bytes that a header may have, as it is spelled. What is longer was no header.
const MAX_HEADER: usize = 512;

/// Bytes of a character behind its first.
const MAX_REST: usize = 3;

/// Tokens that a header may have: `<|start|>`, `<|channel|>` and `<|constrain|>` are three. What has more was no
/// header. Each token is weighed against all before it, so that their number has to be bounded for the work to be.
const MAX_TOKENS: usize = 8;

/// What stands in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Reasoning,
    Text(Option<Phase>),
    /// A call of a tool, its name spelled.
    Call {
        name: Vec<u8>,
        custom: bool,
    },
}

/// A header as far as it has come.
#[derive(Clone, Debug, Default)]
pub(super) struct Header {
    /// As it came, tokens included.
    raw: Vec<u8>,
    parts: Vec<HeaderPart>,
    /// It stands inside a message that was not ended: it may yet be text that only looks like one.
    pub(super) inside: Option<(Kind, bool)>,
}

/// What stands between two tokens.
#[derive(Clone, Copy, Debug)]
struct HeaderPart {
    /// The token before it; None: there is none yet.
    marker: Option<Marker>,
    /// Where that token begins.
    token: usize,
    /// Where the part's text begins.
    text: usize,
}

/// A word of a header and where it stands.
struct Word {
    text: String,
    place: Range<usize>,
}

/// What text does to a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    All,
    /// So many bytes, and with them it cannot be a header any more.
    Spoilt(usize),
}

impl Header {
    /// A header that `marker`, spelled `token`, begins.
    pub(super) fn begun(marker: Marker, token: &[u8], inside: Option<(Kind, bool)>) -> Self {
        let mut header = Header {
            inside,
            ..Header::default()
        };
        header.mark(marker, token);
        header
    }

    /// Takes in a token.
    pub(super) fn mark(&mut self, marker: Marker, token: &[u8]) {
        let start = self.raw.len();
        self.raw.extend_from_slice(token);
        self.parts.push(HeaderPart {
            marker: Some(marker),
            token: start,
            text: self.raw.len(),
        });
    }

    /// Whether one more token can be of a header.
    pub(super) fn has_room(&self, token: &[u8]) -> bool {
        self.parts.len() < MAX_TOKENS && self.raw.len() + token.len() <= MAX_HEADER
    }

    /// Takes in text, as much of it as can be of a header.
    pub(super) fn push(&mut self, text: &[u8]) -> Taken {
        if self.parts.is_empty() {
            self.parts.push(HeaderPart {
                marker: None,
                token: 0,
                text: 0,
            });
        }
        let mut taken = 0;
        while taken < text.len() {
            let len = match unit(text, taken) {
                Unit::Ascii(_, len) | Unit::Other(len) => len,
                Unit::Incomplete | Unit::End => text.len() - taken,
            };
            // What follows a header may be text, and must not begin inside a character.
            let goes_on = text.get(taken).is_some_and(|byte| (byte & 0xC0) == 0x80);
            let limit = MAX_HEADER + if goes_on { MAX_REST } else { 0 };
            if self.raw.len() + len > limit {
                return Taken::Spoilt(taken);
            }
            self.raw
                .extend_from_slice(text.get(taken..taken + len).unwrap_or_default());
            taken += len;
        }
        if self.is_possible(false) {
            Taken::All
        } else {
            Taken::Spoilt(taken)
        }
    }

    /// Whether no token has come: it is what may stand before a message, or else text.
    pub(super) fn is_unmarked(&self) -> bool {
        self.parts.iter().all(|part| part.marker.is_none())
    }

    /// Whether it holds nothing but white space.
    pub(super) fn is_blank(&self) -> bool {
        self.words(0..self.raw.len()).is_empty()
    }

    /// As it came.
    pub(super) fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// Whether this can be a header. Where it has to be one, its words do not matter.
    ///
    /// `is_whole`: the last word is not going to grow.
    pub(super) fn is_possible(&self, is_whole: bool) -> bool {
        let known = |word: &Word, grows: bool, names: &[&str]| {
            names.contains(&&*word.text)
                || word.text.starts_with("to=")
                || grows
                    && (names.iter().any(|name| name.starts_with(&word.text))
                        || "to=".starts_with(&word.text))
        };
        self.parts().all(|(marker, range)| {
            let names: &[&str] = match marker {
                None => &["assistant", "analysis", "commentary", "final"],
                _ if self.inside.is_none() => return true,
                Some(Marker::Start) => &["assistant"],
                Some(Marker::Channel) => &["analysis", "commentary", "final"],
                _ => return true,
            };
            let text = self.raw.get(range.clone()).unwrap_or_default();
            let is_last = range.end == self.raw.len();
            let words = self.words(range);
            let ends_open = is_last
                && !is_whole
                && words
                    .last()
                    .is_some_and(|word| word.place.end == self.raw.len());
            let addressed = words
                .iter()
                .position(|word| word.text.starts_with("to="))
                .unwrap_or(words.len());
            let count = words.len();
            let is_short = text.len() < MAX_HEADER && count <= 4;
            is_short
                && words.iter().enumerate().all(|(place, word)| {
                    // Behind the recipient the type of the content may stand, and it may be anything.
                    place > addressed || known(word, ends_open && place + 1 == count, names)
                })
        })
    }

    /// Each part's token, and where its text stands.
    fn parts(&self) -> impl Iterator<Item = (Option<Marker>, Range<usize>)> {
        self.parts.iter().enumerate().map(|(place, part)| {
            let next = self.parts.get(place + 1);
            let end = next.map_or(self.raw.len(), |next| next.token);
            (part.marker, part.text..end)
        })
    }

    /// The words in `range` of the header.
    fn words(&self, range: Range<usize>) -> Vec<Word> {
        let text = self.raw.get(..range.end).unwrap_or_default();
        let mut words = Vec::new();
        let mut at = range.start;
        let mut start = at;
        loop {
            let (is_space, len) = match unit(text, at) {
                Unit::Ascii(letter, len) => (letter.is_ascii_whitespace(), len),
                Unit::Other(len) => (false, len),
                Unit::Incomplete => (false, text.len() - at),
                Unit::End => (true, 0),
            };
            if is_space {
                if at > start {
                    words.push(Word {
                        text: string::decode(text.get(start..at).unwrap_or_default()).into_owned(),
                        place: start..at,
                    });
                }
                start = at + len;
            }
            if len == 0 {
                return words;
            }
            at += len;
        }
    }

    /// The recipient: the part that it stands in, and which word of it, and its name. It may stand in any part; the
    /// last one holds.
    fn recipient(&self) -> Option<(usize, usize, String)> {
        let mut found = None;
        for (part, (marker, range)) in self.parts().enumerate() {
            for (place, word) in self.words(range).into_iter().enumerate() {
                let is_name = marker.is_some() && place > 0 && found.is_none();
                if let Some(to) = word.text.strip_prefix("to=") {
                    found = Some((part, place, to.to_owned()));
                } else if is_name && word.text.starts_with("functions.") {
                    found = Some((part, place, word.text));
                }
            }
        }
        found
    }

    /// What the message is.
    pub(super) fn kind(&self) -> Kind {
        let mut channel = None;
        for (marker, range) in self.parts() {
            for (place, word) in self.words(range).into_iter().enumerate() {
                let text = word.text;
                if text.starts_with("to=") {
                    continue;
                }
                if marker == Some(Marker::Channel) && place == 0 {
                    channel = Some(text);
                } else if marker.is_none() && text != "assistant" {
                    channel = channel.or(Some(text));
                }
            }
        }
        let recipient = self.recipient().map(|(_, _, to)| to);
        let recipient = recipient.filter(|to| !matches!(&**to, "" | "assistant" | "user" | "all"));
        if let Some(to) = recipient {
            let name = to.strip_prefix("functions.").unwrap_or(&to);
            let mut spelled = Vec::with_capacity(name.len());
            string::spell(name, &mut spelled);
            return Kind::Call {
                name: spelled,
                custom: to == "python",
            };
        }
        match channel.as_deref() {
            Some("analysis") => Kind::Reasoning,
            Some("commentary") => Kind::Text(Some(Phase::Commentary)),
            Some("final") => Kind::Text(Some(Phase::FinalAnswer)),
            _ => Kind::Text(None),
        }
    }

    /// What stands behind the words that a header has, the recipient among them: of a header without `<|message|>`,
    /// its message.
    pub(super) fn rest(&self) -> &[u8] {
        let Some((last, (_, range))) = self.parts().enumerate().last() else {
            return &[];
        };
        let end = range.end;
        let own = match self.recipient() {
            Some((part, place, _)) if part == last => place + 1,
            _ => 1,
        };
        let words = self.words(range);
        let first = words.get(own).map_or(end, |word| word.place.start);
        self.raw.get(first..end).unwrap_or_default()
    }
}
