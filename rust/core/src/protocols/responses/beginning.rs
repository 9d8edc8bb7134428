//! A background response before an upstream speaks: its object, and its first events.

use std::sync::Arc;

use super::echo::Echo;
use super::members::with_members;
use super::request::ResponsesRequest;
use super::vocabulary::{Journal, raw};
use super::writing::heading::{End, Heading};

/// The object of a background response that has just been taken on. `created_at`: seconds since 1970; `model` is what
/// it is called.
///
/// ```
/// use sluicegate_core::limits::Limits;
/// use sluicegate_core::protocols::responses::beginning::queued;
/// use sluicegate_core::protocols::responses::request::ResponsesRequest;
///
/// let request = ResponsesRequest::parse(r#"{"model":"m","background":true}"#.into(), &Limits::default())?;
/// let object = String::from_utf8(queued(&request, "resp_1", 7, "m")).unwrap();
/// assert!(object.starts_with(r#"{"id":"resp_1","object":"response","created_at":7,"status":"queued","#));
/// # Ok::<(), sluicegate_core::error::Error>(())
/// ```
#[must_use]
pub fn queued(request: &ResponsesRequest, id: &str, created_at: u64, model: &str) -> Vec<u8> {
    let echo = Arc::new(Echo::of(request, id, created_at));
    let mut out = Vec::new();
    Heading::new(echo, Some(model)).write(End::Queued, b"", None, None, &mut out);
    out
}

/// Its first two events, numbered 0 and 1.
#[must_use]
pub fn first_events(response: &[u8]) -> Vec<u8> {
    let response = with_members(response, &[]);
    let mut journal = Journal::new(true);
    let mut out = Vec::with_capacity(2 * response.len() + 160);
    for kind in ["response.created", "response.queued"] {
        journal.event(kind, &mut out, |out| raw("response", &response, out));
    }
    out
}

/// The event that says that it is being worked on.
#[must_use]
pub fn in_progress(response: &[u8], number: u64) -> Vec<u8> {
    let response = with_members(response, &[("status", b"\"in_progress\"")]);
    let mut out = Vec::with_capacity(response.len() + 96);
    Journal::after(number.checked_sub(1)).event("response.in_progress", &mut out, |out| {
        raw("response", &response, out);
    });
    out
}
