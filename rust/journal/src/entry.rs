//! The entry of one request: what its engine stores while it runs, and how it ends.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use uuid::Uuid;

use crate::journal::{Over, Shared};
use crate::layout::{
    ATTEMPTS, BYTES, FIRST_TOKEN, LEFT, MOVED_WORD, STATE, TOKENS, USED_WORD, VOID, closing, moved,
    used,
};
use crate::owner::Owner;
use crate::record::{Attempt, Closing, ClosingTexts, Counts};

/// One open record. It has one writer. Dropped without being closed it ends as interrupted, or, where no upstream has
/// heard of it, as nothing.
pub struct Entry {
    shared: Arc<Shared>,
    /// None once it is over.
    over: Option<Over>,
    /// The first word of what is seen.
    seen: usize,
    id: Uuid,
    owner: Owner,
    attempts: u64,
}

impl Entry {
    pub(crate) fn new(
        shared: Arc<Shared>,
        over: Over,
        seen: usize,
        id: Uuid,
        owner: Owner,
    ) -> Self {
        let seen = over.at + seen;
        Self {
            shared,
            over: Some(over),
            seen,
            id,
            owner,
            attempts: 0,
        }
    }

    /// The record's id.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.id
    }

    fn store(&self, word: usize, value: u64) {
        if let Some(over) = &self.over {
            over.segment
                .words
                .store(self.seen + word, value, Ordering::Release);
        }
    }

    fn store_number(&self, word: usize, number: u64) {
        self.store(word, self.owner.mark(word, number));
    }

    fn store_all(&self, word: usize, bytes: &[u8]) {
        if let Some(over) = &self.over {
            over.segment.words.store_all(self.seen + word, bytes);
        }
    }

    /// An upstream is about to hear of the request.
    pub fn attempt(&mut self, upstream: &str, upstream_model: &str) {
        self.attempts += 1;
        if self.attempts > 1 {
            // Nothing of what an earlier attempt brought is this one's.
            self.store_number(TOKENS, 0);
            self.store_number(BYTES, 0);
            self.store(FIRST_TOKEN, 0);
            self.store(USED_WORD, 0);
            let (first, bytes) = moved(self.owner, upstream, upstream_model);
            self.store(MOVED_WORD, 0);
            fence(Ordering::Release);
            self.store_all(MOVED_WORD + 1, &bytes);
            self.store(MOVED_WORD, first);
        }
        self.store_number(ATTEMPTS, self.attempts);
    }

    /// So many events that bore output and so many body bytes have come.
    pub fn progress(&self, token_events: u64, bytes_in: u64) {
        self.store_number(TOKENS, token_events);
        self.store_number(BYTES, bytes_in);
    }

    /// The first output came, `at` microseconds from the request's beginning.
    pub fn first_token(&self, at: u64) {
        self.store_number(FIRST_TOKEN, at);
    }

    /// The upstream has the whole request, or has begun to reply: it may have used something from here on, of which
    /// nothing is known yet.
    pub fn accepted(&mut self) {
        self.usage(&Counts::default(), false);
    }

    /// The last usage that the upstream gave. `whole`: the reply has come to its end.
    pub fn usage(&mut self, usage: &Counts, whole: bool) {
        let (at, words, check) = used(self.owner, usage, whole);
        for (offset, word) in words.into_iter().enumerate() {
            self.store(at + offset, word);
        }
        self.store(USED_WORD, check);
    }

    /// It is over, and can be taken. Only the first call counts.
    pub fn close(
        &mut self,
        numbers: &Closing,
        usage: &Counts,
        texts: &ClosingTexts<'_>,
        attempts: &[Attempt<&str>],
    ) {
        let Some(over) = self.over.take() else {
            return;
        };
        let (at, bytes, state) = closing(self.owner, numbers, usage, texts, attempts);
        over.segment.words.store_all(self.seen + at, &bytes);
        over.segment
            .words
            .store(over.at + STATE, state, Ordering::Release);
        self.end(over);
    }

    fn end(&self, over: Over) {
        // The reply is out: whoever calls `Journal::sync` is told of a failure, and the row comes from memory.
        let _ = self.shared.stored(&over.segment);
        self.shared.open.fetch_sub(1, Ordering::AcqRel);
        self.shared.push(over);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(over) = self.over.take() else {
            return;
        };
        if self.attempts > 0 {
            over.segment
                .words
                .store(over.at + STATE, LEFT, Ordering::Release);
            return self.end(over);
        }
        over.segment
            .words
            .store(over.at + STATE, VOID, Ordering::Release);
        self.shared.open.fetch_sub(1, Ordering::AcqRel);
        // To empty the segment is nothing for an engine's thread: whoever prepares segments finds it.
        over.segment.live.fetch_sub(1, Ordering::AcqRel);
    }
}
