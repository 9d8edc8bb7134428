//! Verifies a reply as it arrives: every token once, in order, its own stream's, and a proper end.

use memchr::memmem::Finder;
use serde::Serialize;
use serde_json::Value;

use crate::script::{PREFIX, read_mark};

/// What a reply must hold.
#[derive(Clone, Copy)]
pub(crate) struct Expectation {
    pub(crate) tag: u32,
    pub(crate) tokens: u32,
    pub(crate) prompt_bytes: u64,
    /// The usage object must hold a cost.
    pub(crate) cost: bool,
}

/// Everything that can be wrong with a reply. A run in which any of these is not zero is void.
#[derive(Default, Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Wrongs {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    /// Tokens of another stream.
    pub(crate) foreign: u64,
    pub(crate) without_done: u64,
    pub(crate) without_finish: u64,
    /// No usage, or not the numbers that the upstream sent.
    pub(crate) without_usage: u64,
    pub(crate) without_cost: u64,
    /// Data that is not JSON, an error object, data after `[DONE]`.
    pub(crate) unreadable: u64,
}

impl Wrongs {
    pub(crate) fn add(&mut self, other: &Self) {
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.foreign += other.foreign;
        self.without_done += other.without_done;
        self.without_finish += other.without_finish;
        self.without_usage += other.without_usage;
        self.without_cost += other.without_cost;
        self.unreadable += other.unreadable;
    }
}

/// What one line of an event stream was.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Line {
    /// `sent`: by `script::clock`; None where the mark cannot be read.
    Token {
        sent: Option<u64>,
    },
    OtherData,
    NoData,
}

/// The state of one reply's verification.
pub(crate) struct Check {
    expectation: Expectation,
    prefix: Finder<'static>,
    partial: Vec<u8>,
    next: u32,
    done: bool,
    finish: bool,
    usage: bool,
    cost: bool,
    wrongs: Wrongs,
}

impl Check {
    pub(crate) fn new(expectation: Expectation) -> Self {
        Self {
            expectation,
            prefix: Finder::new(PREFIX),
            partial: Vec::new(),
            next: 0,
            done: false,
            finish: false,
            usage: false,
            cost: false,
            wrongs: Wrongs::default(),
        }
    }

    /// Begins the next reply on the same connection.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.expectation);
    }

    /// Feeds body bytes of an event stream; calls `seen` for every whole line of data.
    pub(crate) fn feed(&mut self, mut input: &[u8], mut seen: impl FnMut(Line)) {
        while let Some(end) = memchr::memchr(b'\n', input) {
            let (line, rest) = (&input[..end], &input[end + 1..]);
            let kind = if self.partial.is_empty() {
                self.line(line)
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                let kind = self.line(&whole);
                whole.clear();
                self.partial = whole;
                kind
            };
            if kind != Line::NoData {
                seen(kind);
            }
            input = rest;
        }
        self.partial.extend_from_slice(input);
    }

    fn line(&mut self, line: &[u8]) -> Line {
        let Some(payload) = line.strip_prefix(b"data:") else {
            return Line::NoData;
        };
        let payload = payload.trim_ascii();
        if self.done {
            self.wrongs.unreadable += 1;
        }
        if payload == b"[DONE]" {
            self.done = true;
            return Line::OtherData;
        }
        if let Some(position) = self.prefix.find(payload) {
            return Line::Token {
                sent: self.token(&payload[position..]),
            };
        }
        match serde_json::from_slice::<Value>(payload) {
            Ok(value) if value.get("error").is_none_or(Value::is_null) => self.object(&value),
            _ => self.wrongs.unreadable += 1,
        }
        Line::OtherData
    }

    /// When the token was sent.
    fn token(&mut self, mark: &[u8]) -> Option<u64> {
        let mark = read_mark(mark);
        match mark {
            Some(mark) if mark.tag == self.expectation.tag => {
                if mark.number < self.next {
                    self.wrongs.doubled += 1;
                } else {
                    self.wrongs.lost += u64::from(mark.number - self.next);
                    self.next = mark.number + 1;
                }
            }
            Some(_) => self.wrongs.foreign += 1,
            None => self.wrongs.unreadable += 1,
        }
        mark.map(|mark| mark.sent)
    }

    /// What is no token, of a chat completion or of a message.
    fn object(&mut self, value: &Value) {
        let reasons = [
            "/choices/0/finish_reason",
            "/delta/stop_reason",
            "/stop_reason",
        ];
        self.finish |= reasons
            .iter()
            .any(|reason| value.pointer(reason).is_some_and(Value::is_string));
        self.done |= value.get("type").is_some_and(|kind| kind == "message_stop");
        let Some(usage) = value.get("usage").filter(|usage| usage.is_object()) else {
            return;
        };
        let counts = |names: [&str; 2], expected: u64| {
            let count = names.iter().find_map(|name| usage.get(name)?.as_u64());
            count == Some(expected)
        };
        let tokens = u64::from(self.expectation.tokens);
        self.usage = counts(
            ["prompt_tokens", "input_tokens"],
            self.expectation.prompt_bytes,
        ) && counts(["completion_tokens", "output_tokens"], tokens);
        self.cost = usage
            .get("cost")
            .and_then(Value::as_f64)
            .is_some_and(|cost| cost > 0.0);
    }

    /// A whole JSON reply, which holds the script's token 0.
    pub(crate) fn document(&mut self, body: &[u8]) {
        match self.prefix.find(body) {
            Some(position) => {
                self.token(&body[position..]);
            }
            None => self.wrongs.lost += 1,
        }
        self.next = self.next.max(self.expectation.tokens);
        self.done = true;
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => self.object(&value),
            Err(_) => self.wrongs.unreadable += 1,
        }
    }

    /// The reply has ended: what was wrong with it.
    pub(crate) fn settle(&self) -> Wrongs {
        let mut wrongs = self.wrongs;
        wrongs.lost += u64::from(self.expectation.tokens.saturating_sub(self.next));
        wrongs.without_done += u64::from(!self.done);
        wrongs.without_finish += u64::from(!self.finish);
        wrongs.without_usage += u64::from(!self.usage);
        wrongs.without_cost += u64::from(self.expectation.cost && !self.cost);
        wrongs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{Script, write_content};

    const EXPECTATION: Expectation = Expectation {
        tag: 3,
        tokens: 3,
        prompt_bytes: 50,
        cost: true,
    };
    const END: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":50,\"completion_tokens\":3,\"cost\":0.01}}\n\n\
        data: [DONE]\n\n";

    fn event(tag: u32, number: u32) -> String {
        let mut content = Vec::new();
        write_content(
            &Script {
                tag,
                ..Script::default()
            },
            number,
            &mut content,
        );
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\": \"{}\"}}}}]}}\n\n",
            String::from_utf8(content).unwrap()
        )
    }

    fn run(stream: &str, step: usize) -> (Wrongs, usize) {
        let mut check = Check::new(EXPECTATION);
        let mut tokens = 0;
        for piece in stream.as_bytes().chunks(step) {
            check.feed(piece, |line| {
                tokens += usize::from(matches!(line, Line::Token { sent: Some(_) }))
            });
        }
        (check.settle(), tokens)
    }

    #[test]
    fn a_whole_stream_is_in_order_however_it_was_cut() {
        let stream = format!(
            ": ping\r\n\r\n{}{}{}{END}",
            event(3, 0),
            event(3, 1),
            event(3, 2).replace('\n', "\r\n")
        );
        for step in [1, 7, 64, 4096] {
            assert_eq!(run(&stream, step), (Wrongs::default(), 3), "step {step}");
        }
    }

    #[test]
    fn lost_doubled_and_foreign_tokens_are_counted() {
        let wrongs = |numbers: &[(u32, u32)]| {
            let tokens: String = numbers
                .iter()
                .map(|&(tag, number)| event(tag, number))
                .collect();
            run(&format!("{tokens}{END}"), 4096).0
        };
        assert_eq!(
            wrongs(&[(3, 0), (3, 2)]),
            Wrongs {
                lost: 1,
                ..Wrongs::default()
            }
        );
        assert_eq!(
            wrongs(&[(3, 0), (3, 1)]),
            Wrongs {
                lost: 1,
                ..Wrongs::default()
            }
        );
        assert_eq!(
            wrongs(&[(3, 0), (3, 1), (3, 1), (3, 2)]),
            Wrongs {
                doubled: 1,
                ..Wrongs::default()
            }
        );
        assert_eq!(
            wrongs(&[(3, 0), (4, 1), (3, 1), (3, 2)]),
            Wrongs {
                foreign: 1,
                ..Wrongs::default()
            }
        );
    }

    #[test]
    fn an_end_that_is_missing_is_counted() {
        let tokens = [event(3, 0), event(3, 1), event(3, 2)].concat();
        let broken = run(&tokens, 4096).0;
        let all = Wrongs {
            without_done: 1,
            without_finish: 1,
            without_usage: 1,
            without_cost: 1,
            ..Wrongs::default()
        };
        assert_eq!(broken, all);
        let uncosted = run(&format!("{tokens}{}", END.replace("cost", "price")), 4096).0;
        assert_eq!(
            uncosted,
            Wrongs {
                without_cost: 1,
                ..Wrongs::default()
            }
        );
        let miscounted = run(&format!("{tokens}{}", END.replace(":50", ":49")), 4096).0;
        assert_eq!(
            miscounted,
            Wrongs {
                without_usage: 1,
                ..Wrongs::default()
            }
        );
        let error =
            format!("{tokens}data: {{\"error\":{{\"message\":\"no\"}}}}\n\n{END}data: {{}}\n\n");
        assert_eq!(
            run(&error, 4096).0,
            Wrongs {
                unreadable: 2,
                ..Wrongs::default()
            }
        );
    }

    #[test]
    fn a_message_is_whole_with_its_own_end() {
        let mut content = Vec::new();
        let script = Script {
            tag: 3,
            ..Script::default()
        };
        let mut stream = String::from(
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":0}}}\n\n",
        );
        for number in 0..3 {
            content.clear();
            write_content(&script, number, &mut content);
            let text = String::from_utf8_lossy(&content);
            stream.push_str(&format!(
                "data: {{\"type\":\"content_block_delta\",\"delta\":{{\"text\":\"{text}\"}}}}\n\n"
            ));
        }
        stream.push_str(
            "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\
             \"usage\":{\"input_tokens\":50,\"output_tokens\":3,\"cost\":0.01}}\n\n",
        );
        assert_eq!(run(&stream, 7).0.without_done, 1);
        stream.push_str("data: {\"type\":\"message_stop\"}\n\n");
        assert_eq!(run(&stream, 7), (Wrongs::default(), 3));
    }

    #[test]
    fn a_document_is_one_token_with_usage() {
        let mut content = Vec::new();
        write_content(
            &Script {
                tag: 3,
                ..Script::default()
            },
            0,
            &mut content,
        );
        let body = format!(
            "{{\"choices\":[{{\"message\":{{\"content\":\"{}\"}},\"finish_reason\":\"stop\"}}],\
             \"usage\":{{\"prompt_tokens\":50,\"completion_tokens\":3,\"cost\":1e-5}}}}",
            String::from_utf8(content).unwrap()
        );
        let mut check = Check::new(EXPECTATION);
        check.document(body.as_bytes());
        assert_eq!(check.settle(), Wrongs::default());
        let mut check = Check::new(EXPECTATION);
        check.document(b"{}");
        assert_eq!(
            check.settle(),
            Wrongs {
                lost: 1,
                without_finish: 1,
                without_usage: 1,
                without_cost: 1,
                ..Wrongs::default()
            }
        );
    }
}
