//! The members of a request's line in the log.

use sluicegate_core::json::writer::Writer;

/// The members of a line. What is not known is left out.
pub(super) struct Line(pub(super) Writer);

impl Line {
    pub(super) fn text(&mut self, name: &str, value: &str) {
        self.0.key(name);
        self.0.text(value);
    }

    pub(super) fn text_of(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    pub(super) fn number(&mut self, name: &str, value: impl Into<u64>) {
        let value: u64 = value.into();
        self.0.member(name, value.to_string().as_bytes());
    }

    pub(super) fn number_of<N: Into<u64>>(&mut self, name: &str, value: Option<N>) {
        if let Some(value) = value {
            self.number(name, value);
        }
    }

    /// To the microsecond.
    pub(super) fn seconds(&mut self, name: &str, value: f64) {
        self.0.member(name, format!("{value:.6}").as_bytes());
    }

    pub(super) fn seconds_of(&mut self, name: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.seconds(name, value);
        }
    }

    pub(super) fn flag(&mut self, name: &str, value: bool) {
        self.0.member(name, if value { b"true" } else { b"false" });
    }

    pub(super) fn flag_where(&mut self, name: &str, value: bool) {
        if value {
            self.flag(name, true);
        }
    }
}
