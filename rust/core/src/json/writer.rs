//! Writing JSON one value behind the other, from values that are JSON already.

use super::string;

/// A JSON text as it is written: commas come by themselves. That brackets match and keys stand in objects only is up to
/// the caller.
///
/// ```
/// use sluicegate_core::json::writer::Writer;
///
/// let mut writer = Writer::default();
/// writer.open(b'{');
/// writer.key("texts");
/// writer.open(b'[');
/// writer.spelled(b"caf\\u00e9");
/// writer.raw(b"2.50");
/// writer.close(b']');
/// writer.member("n", b"1");
/// writer.close(b'}');
/// assert_eq!(writer.into_bytes(), br#"{"texts":["caf\u00e9",2.50],"n":1}"#);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// With room for `size` bytes.
    #[must_use]
    pub fn with_capacity(size: usize) -> Self {
        Writer {
            out: Vec::with_capacity(size),
        }
    }

    /// No value ends in one of these bytes, so whether a comma is due shows in the last one.
    fn separate(&mut self) {
        if !matches!(self.out.last(), None | Some(b'{' | b'[' | b':' | b',')) {
            self.out.push(b',');
        }
    }

    /// Begins an object or an array.
    pub fn open(&mut self, bracket: u8) {
        self.separate();
        self.out.push(bracket);
    }

    /// Ends an object or an array.
    pub fn close(&mut self, bracket: u8) {
        self.out.push(bracket);
    }

    /// A member's name, plain ASCII; its value must follow.
    pub fn key(&mut self, name: &str) {
        self.spelled(name.as_bytes());
        self.out.push(b':');
    }

    /// A member's name as it is spelled elsewhere, quotes included; its value must follow.
    pub fn raw_key(&mut self, key: &[u8]) {
        self.raw(key);
        self.out.push(b':');
    }

    /// A value, or several with their commas, as they are.
    pub fn raw(&mut self, json: &[u8]) {
        if !json.is_empty() {
            self.separate();
            self.out.extend_from_slice(json);
        }
    }

    /// A string, given as its content between the quotes.
    pub fn spelled(&mut self, content: &[u8]) {
        self.spelled_parts(&[content]);
    }

    /// A string, given as parts of its content between the quotes.
    pub fn spelled_parts(&mut self, parts: &[&[u8]]) {
        self.separate();
        self.out.push(b'"');
        for part in parts {
            self.out.extend_from_slice(part);
        }
        self.out.push(b'"');
    }

    /// A string.
    pub fn text(&mut self, text: &str) {
        self.separate();
        string::encode(text, &mut self.out);
    }

    /// A string that holds this JSON text.
    pub fn quoted(&mut self, json: &[u8]) {
        self.separate();
        self.out.push(b'"');
        string::spell_bytes(json, &mut self.out);
        self.out.push(b'"');
    }

    /// A member whose value is JSON already.
    pub fn member(&mut self, name: &str, json: &[u8]) {
        self.key(name);
        self.raw(json);
    }

    /// A member whose value is a string, given as its content between the quotes.
    pub fn member_spelled(&mut self, name: &str, content: &[u8]) {
        self.key(name);
        self.spelled(content);
    }

    /// A member of another object, its name as it is spelled there (quotes included).
    pub fn copy_member(&mut self, key: &[u8], json: &[u8]) {
        self.raw_key(key);
        self.raw(json);
    }

    /// Whether nothing has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// What has been written.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.out
    }

    /// What has been written.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }
}
