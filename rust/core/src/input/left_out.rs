//! The parts of a request that are not sent to its upstream: a list of bounded length, whatever the request holds.

use std::fmt::Display;

/// Parts that are named. More of them are counted.
const MAX_NAMED: usize = 16;

/// The longest name of a part, in bytes.
const MAX_NAME: usize = 64;

/// The parts of a request that are not sent to its upstream.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOut {
    named: Vec<Box<str>>,
    more: usize,
}

impl LeftOut {
    /// Adds the part at `place`.
    pub(crate) fn add(&mut self, place: impl Display) {
        self.note(|| place.to_string());
    }

    /// The part at `place`, which is a `kind`.
    pub(crate) fn add_kind(&mut self, place: impl Display, kind: &str) {
        self.note(|| format!("{place} ({kind})"));
    }

    fn note(&mut self, name: impl FnOnce() -> String) {
        if self.named.len() < MAX_NAMED {
            self.named.push(cut(name()).into());
        } else {
            self.more += 1;
        }
    }

    /// Adds what `other` has.
    pub(crate) fn append(&mut self, other: LeftOut) {
        for name in other.named {
            self.note(|| name.into());
        }
        self.more += other.more;
    }

    /// The names, and how many more there are.
    pub(crate) fn finish(mut self) -> Vec<Box<str>> {
        if self.more > 0 {
            self.named
                .push(format!("… and {} more", grouped(self.more)).into());
        }
        self.named
    }
}

/// `name`, or as much of its start as fits before an ellipsis.
fn cut(mut name: String) -> String {
    const ELLIPSIS: &str = "…";
    if name.len() > MAX_NAME {
        let room = MAX_NAME - ELLIPSIS.len();
        let end = (0..=room).rfind(|end| name.is_char_boundary(*end));
        name.truncate(end.unwrap_or(0));
        name.push_str(ELLIPSIS);
    }
    name
}

/// `99,984`.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_past_the_bound_is_counted() {
        let mut left_out = LeftOut::default();
        for index in 0..100_000 {
            left_out.add_kind(format_args!("input[{index}]"), "web_search_call");
        }
        let names = left_out.finish();
        assert_eq!(names.len(), 17);
        assert_eq!(&*names[15], "input[15] (web_search_call)");
        assert_eq!(&*names[16], "… and 99,984 more");
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let mut left_out = LeftOut::default();
        left_out.add("é".repeat(100));
        left_out.add("x".repeat(64));
        let names = left_out.finish();
        assert_eq!(*names[0], *format!("{}…", "é".repeat(30)));
        assert_eq!(names[1].len(), 64);
    }

    #[test]
    fn thousands_are_grouped() {
        for (number, text) in [
            (1, "1"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
