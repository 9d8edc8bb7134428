//! The input of a custom tool, out of the arguments of the function that stands for it with a chat upstream.
//!
//! The arguments are a JSON object with one string, `{"input":"ls -la"}`, and arrive in pieces of a JSON string, cut
//! anywhere. What the string holds is spelled as the input has to be spelled, so it is handed on as soon as it comes.
//! Models do not always write that object: whatever else they write is the input itself.

use std::borrow::Cow;

use crate::json::scan::{Kind, Members};
use crate::json::string;

/// What stands before the input, white space between its tokens aside.
const LEAD: [&[u8]; 4] = [b"{", b"\"input\"", b":", b"\""];

/// Open containers of an object that is searched for its member `input`.
const MAX_DEPTH: usize = 64;

/// Arguments on their way to being an input.
#[derive(Debug, Default)]
pub(super) struct CustomInput {
    state: InputState,
    /// Arguments, decoded once: all of them until the input begins, then what has no meaning yet.
    text: Vec<u8>,
    /// Tokens of `LEAD` that were found, and where in `text` the next is looked for.
    found: usize,
    at: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum InputState {
    /// The input may begin where `LEAD` ends.
    #[default]
    Before,
    /// It did.
    Inside,
    /// Its closing quote came.
    Behind,
}

impl CustomInput {
    /// Takes the next piece of the arguments, spelled, and appends what it adds to the input, spelled.
    pub(super) fn push(&mut self, arguments: &[u8], out: &mut Vec<u8>) {
        if self.state == InputState::Behind {
            return;
        }
        self.text.extend_from_slice(&string::plain(arguments));
        if self.state == InputState::Before
            && let Some(start) = self.lead_end()
        {
            self.text.drain(..start);
            self.state = InputState::Inside;
        }
        if self.state == InputState::Inside {
            self.pass(out);
        }
    }

    /// No more arguments come; appends what is still missing of the input.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        let text = std::mem::take(&mut self.text);
        match std::mem::replace(&mut self.state, InputState::Behind) {
            InputState::Before => match input_of(&text) {
                Some(input) => out.extend_from_slice(input),
                None => quote(&text, out),
            },
            InputState::Inside => {
                pass_string(&text, true, out);
            }
            InputState::Behind => {}
        }
    }

    /// Hands on what is whole. Where the input begins, if all that stands before it has come. White space is passed
    /// over once, however it was cut.
    fn lead_end(&mut self) -> Option<usize> {
        while let Some(token) = LEAD.get(self.found) {
            let rest = self.text.get(self.at..)?;
            let space = rest.len() - rest.trim_ascii_start().len();
            self.at += space;
            rest.get(space..)?.strip_prefix(*token)?;
            self.at += token.len();
            self.found += 1;
        }
        Some(self.at)
    }

    fn pass(&mut self, out: &mut Vec<u8>) {
        let passed = pass_string(&self.text, false, out);
        if self.text.get(passed) == Some(&b'"') {
            self.state = InputState::Behind;
            self.text = Vec::new();
        } else {
            self.text.drain(..passed);
        }
    }
}

/// The content of the member `input` of a whole object.
fn input_of(text: &[u8]) -> Option<&[u8]> {
    let members = Members::document(text, MAX_DEPTH).ok()?;
    let members: Result<Vec<_>, _> = members.collect();
    let input = members.ok()?.into_iter().rfind(|m| m.key_is(text, "input"));
    let input = input.filter(|input| input.value.kind == Kind::String)?;
    Some(input.value.content(text))
}

/// Appends the content of a JSON string up to its closing quote or the end of `text`, and returns how much of `text`
/// that is. What JSON does not allow in a string, and models write all the same, is escaped. `whole`: nothing follows,
/// half an escape is text.
fn pass_string(text: &[u8], whole: bool, out: &mut Vec<u8>) -> usize {
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
        let plain = rest.iter().position(special).unwrap_or(rest.len());
        out.extend_from_slice(rest.get(..plain).unwrap_or_default());
        at += plain;
        let rest = text.get(at..).unwrap_or_default();
        match rest {
            [] | [b'"', ..] => return at,
            [b'\\', b'u', digits @ ..] => {
                let digits = digits.get(..4).unwrap_or(digits);
                let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
                if is_hex && digits.len() == 4 {
                    out.extend_from_slice(rest.get(..6).unwrap_or_default());
                    at += 6;
                } else if is_hex && !whole {
                    return at;
                } else {
                    out.extend_from_slice(b"\\\\");
                    at += 1;
                }
            }
            [
                b'\\',
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't',
                ..,
            ] => {
                out.extend_from_slice(rest.get(..2).unwrap_or_default());
                at += 2;
            }
            [b'\\'] if !whole => return at,
            [b'\\', ..] => {
                out.extend_from_slice(b"\\\\");
                at += 1;
            }
            [control, ..] => {
                quote(&[*control], out);
                at += 1;
            }
        }
    }
    at
}

/// Appends `text` spelled.
fn quote(text: &[u8], out: &mut Vec<u8>) {
    let text: Cow<'_, str> = String::from_utf8_lossy(text);
    let start = out.len();
    string::encode(&text, out);
    out.pop();
    if start < out.len() {
        out.remove(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The input of `arguments`, which come cut at `cuts`.
    fn input(arguments: &str, cuts: &[usize]) -> String {
        let mut custom = CustomInput::default();
        let mut spelled = Vec::new();
        let mut rest = arguments;
        for cut in cuts {
            let mut at = cut % (rest.len() + 1);
            while !rest.is_char_boundary(at) {
                at -= 1;
            }
            let (piece, later) = rest.split_at(at);
            push(&mut custom, piece, &mut spelled);
            rest = later;
        }
        push(&mut custom, rest, &mut spelled);
        custom.finish(&mut spelled);
        let quoted = [b"\"", &*spelled, b"\""].concat();
        serde_json::from_slice(&quoted).unwrap()
    }

    fn push(custom: &mut CustomInput, piece: &str, out: &mut Vec<u8>) {
        let mut quoted = Vec::new();
        string::encode(piece, &mut quoted);
        custom.push(&quoted[1..quoted.len() - 1], out);
    }

    #[test]
    fn the_input_comes_as_soon_as_it_can() {
        let mut custom = CustomInput::default();
        let mut out = Vec::new();
        custom.push(br#"{\"input\": \"ls "#, &mut out);
        assert_eq!(out, b"ls ");
        custom.push(br#"-la \\\"x\\"#, &mut out);
        assert_eq!(out, br#"ls -la \"x"#);
        custom.push(br#"\"\"}"#, &mut out);
        assert_eq!(out, br#"ls -la \"x\""#);
        custom.finish(&mut out);
        assert_eq!(out, br#"ls -la \"x\""#);
    }

    #[test]
    fn what_is_no_such_object_is_the_input_itself() {
        assert_eq!(input("", &[]), "");
        assert_eq!(input("ls -la \"x\"\n", &[3]), "ls -la \"x\"\n");
        assert_eq!(input(r#"{"command":"ls"}"#, &[4]), r#"{"command":"ls"}"#);
        assert_eq!(input(r#"{"input":["ls"]}"#, &[4]), r#"{"input":["ls"]}"#);
        assert_eq!(input(r#"{"a":1,"input":"ls"}"#, &[4]), "ls");
        assert_eq!(input(r#"{"\u0069nput":"ls"}"#, &[]), "ls");
    }

    #[test]
    fn what_json_does_not_allow_is_kept() {
        assert_eq!(input("{\"input\":\"a\nb\tc\"}", &[]), "a\nb\tc");
        assert_eq!(input(r#"{"input":"\d+\u12"}"#, &[]), r"\d+\u12");
        assert_eq!(input(r#"{"input":"cut off\"#, &[]), r"cut off\");
        assert_eq!(input(r#"{"input":"cut off\u00"#, &[]), r"cut off\u00");
        assert_eq!(input(r#"{"input":"cut"#, &[]), "cut");
    }

    /// This would take hours if all of it were passed over again with each piece.
    #[test]
    fn space_before_the_input_is_passed_over_once() {
        let mut custom = CustomInput::default();
        let mut out = Vec::new();
        for token in LEAD {
            for _ in 0..1 << 19 {
                custom.push(b" ", &mut out);
            }
            custom.push(&token.escape_ascii().collect::<Vec<_>>(), &mut out);
        }
        custom.push(b"x", &mut out);
        assert_eq!(out, b"x");
    }

    proptest! {
        #[test]
        fn any_input_in_any_pieces(
            text in "([ -~]|\n|\u{e9}|\u{1F600})*",
            ascii in any::<bool>(),
            spaces in any::<bool>(),
            cuts in proptest::collection::vec(any::<usize>(), 0..8),
        ) {
            let mut spelled = serde_json::to_string(&text).unwrap();
            if ascii {
                let units = |char: char| char.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
                spelled = spelled.chars().map(|char| if char.is_ascii() { char.to_string() } else { units(char) }).collect();
            }
            let space = if spaces { " \n" } else { "" };
            let arguments = format!("{space}{{{space}\"input\"{space}:{space}{spelled}{space}}}");
            prop_assert_eq!(input(&arguments, &cuts), text);
        }
    }
}
