//! A response that is forwarded: folded on its way, so that it can be ended where its upstream breaks off.

use super::super::closing::End;
use super::super::reading::event::Event;
use super::Fold;
use crate::api::DONE;
use crate::output::{Failure, TextPlace};
use crate::protocol::{Effect, Follow};

impl Follow for Fold {
    fn read(&mut self, payload: &[u8]) -> Effect {
        let Ok(event) = Event::read(payload, self.max_depth) else {
            return Effect::Nothing;
        };
        self.read_event(&event).unwrap_or(Effect::Nothing)
    }

    fn say(&mut self, place: TextPlace, said: &[u8]) {
        if let Some(text) = self.text(place) {
            text.said.extend_from_slice(said);
            self.hold(said.len());
        }
    }

    fn is_named(&self) -> bool {
        !self.response.is_empty()
    }

    fn fail(
        &self,
        failure: Failure<'_>,
        last: Option<u64>,
        told: bool,
        model: Option<&str>,
        out: &mut Vec<u8>,
    ) {
        if self.is_named() {
            let first = last.map_or(0, |last| last.saturating_add(1));
            self.end(End::Failed { failure, told }, first, model, out);
            out.extend_from_slice(DONE);
        }
    }
}
