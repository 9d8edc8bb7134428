//! What a record holds, as its writers and readers see it.

use crate::packed::Unpacking;
use crate::texts::Texts;

/// Numbers of one kind, each of which may be unknown.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: Option<u64>,)*
        }

        impl $name {
            /// The fields' names, in order.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];
            /// How many they are.
            pub const COUNT: usize = Self::NAMES.len();

            /// The fields, in order.
            #[must_use]
            pub fn values(&self) -> [Option<u64>; Self::NAMES.len()] {
                [$(self.$field),*]
            }

            /// Of what [`values`](Self::values) gives.
            #[must_use]
            pub fn of(values: [Option<u64>; Self::NAMES.len()]) -> Self {
                let [$($field),*] = values;
                Self { $($field,)* }
            }

            pub(crate) fn words(&self) -> [u64; Self::NAMES.len()] {
                self.values().map(|value| value.unwrap_or(UNKNOWN))
            }

            pub(crate) fn read(bytes: &[u8]) -> Self {
                let mut reading = Unpacking(bytes);
                Self { $($field: reading.number().filter(|word| *word != UNKNOWN),)* }
            }
        }
    };
}

pub(crate) const UNKNOWN: u64 = u64::MAX;

/// The longest text that a record is opened with, in bytes; a longer one is cut.
pub const LONGEST_OPENING_TEXT: usize = 512;

/// The longest text that a record is closed with, in bytes; a longer one is cut.
pub const LONGEST_CLOSING_TEXT: usize = 160;

numbers! {
    /// What is known before an upstream hears of a request. Flags are 0 or 1.
    Opening {
        /// Microseconds since 1970.
        started_at,
        /// The run of a background response, counted from 1.
        run,
        /// It is a run of a background response.
        background,
        /// The client asked for a stream.
        streamed,
        /// Tokens, as they are charged where nobody tells them.
        estimated_input,
        /// Tokens.
        estimated_output,
    }
}

/// The names of the texts that a record is opened with, in order.
pub const OPENING_TEXTS: [&str; 13] = [
    "request_id",
    "response_id",
    "trace_id",
    "endpoint",
    "caller_id",
    "caller",
    "key_id",
    "team",
    "user_id",
    "model",
    "requested_model",
    "upstream",
    "upstream_model",
];

/// The texts that a record is opened with, in the order of [`OPENING_TEXTS`].
pub type OpeningTexts<'a> = [Option<&'a str>; OPENING_TEXTS.len()];

numbers! {
    /// Token counts.
    Counts {
        /// Prompt, cached ones included.
        input,
        /// Read from a cache.
        cached_input,
        /// Written to a cache.
        cache_write,
        /// Of these, for an hour.
        cache_write_1h,
        /// Answer, reasoning included.
        output,
        /// Of these, reasoning.
        reasoning,
        /// Of the input, audio.
        input_audio,
        /// Of the output, audio.
        output_audio,
        /// Of the input, images.
        input_image,
        /// Of the output, images.
        output_image,
    }
}

numbers! {
    /// How a request ended. Times are microseconds from its beginning; flags are 0 or 1.
    Closing {
        /// The status that the client got.
        status,
        /// Attempts made.
        attempts,
        /// The client was sent an event stream.
        streamed,
        /// The client left before the end.
        client_left,
        /// The status that the upstream refused the request with.
        fault_status,
        /// Time in which nothing was asked of any upstream.
        wait,
        /// First byte of the reply's body.
        first_byte,
        /// First text, reasoning or tool call.
        first_token,
        /// The last of them.
        last_token,
        /// The longest time between two of them.
        longest_gap,
        /// The whole exchange.
        duration,
        /// Something of the usage is what was counted or estimated, and not what the upstream said.
        estimated,
        /// Body bytes from the upstream.
        bytes_in,
        /// Body bytes to the client.
        bytes_out,
        /// Events with data.
        events,
        /// Of these, such that are not JSON.
        malformed,
        /// Events that bore output.
        token_events,
        /// All of it, in 10^-12 USD.
        cost,
        /// Of uncached input.
        cost_input,
        /// Of cached input.
        cost_cached_input,
        /// Of what was written to a cache.
        cost_cache_write,
        /// Of output.
        cost_output,
        /// Of reasoning, which is a part of output.
        cost_reasoning,
    }
}

/// The names of the texts that a record is closed with, in order.
pub const CLOSING_TEXTS: [&str; 8] = [
    "upstream",
    "upstream_model",
    "price_id",
    "upstream_request_id",
    "upstream_cost",
    "finish_reason",
    "fault",
    "code",
];

/// The texts that a record is closed with, in the order of [`CLOSING_TEXTS`].
pub type ClosingTexts<'a> = [Option<&'a str>; CLOSING_TEXTS.len()];

/// One attempt of a request that had several. Times are microseconds from the request's beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt<T = Box<str>> {
    /// The upstream's configured name.
    pub upstream: T,
    /// Its name of the model.
    pub upstream_model: T,
    /// Why it failed; none for one that served.
    pub fault: Option<T>,
    /// The upstream's status.
    pub status: Option<u64>,
    /// When it began.
    pub began: u64,
    /// How long it took.
    pub took: u64,
}

/// What was seen of a reply so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Attempts begun; none: no upstream has heard of the request.
    pub attempts: u64,
    /// Events that bore output.
    pub token_events: u64,
    /// Body bytes from the upstream.
    pub bytes_in: u64,
    /// When the first output came, in microseconds from the request's beginning.
    pub first_token: Option<u64>,
    /// The last usage that the upstream gave, all of it unknown where that has accepted the request and said nothing;
    /// none: it may not have got the request.
    pub usage: Option<Counts>,
    /// The reply had come to its end, so that its usage is all of it.
    pub whole: bool,
    /// The upstream that is asked, and its name of the model, where it is not the one that the record was opened with.
    pub moved: Option<(Box<str>, Box<str>)>,
}

/// How a record ended.
// Nearly every one is of the large kind.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As was intended.
    Closed {
        /// Its numbers.
        numbers: Closing,
        /// What was used.
        usage: Counts,
        /// Its texts, in the order of [`CLOSING_TEXTS`].
        texts: Texts,
        /// Each attempt, in order, as many as there was room for.
        attempts: Vec<Attempt>,
    },
    /// By the death of whoever kept it.
    Interrupted(Seen),
}

/// One record, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// A UUID, version 7.
    pub id: u128,
    /// What it was opened with.
    pub opening: Opening,
    /// The same in texts, in the order of [`OPENING_TEXTS`].
    pub texts: Texts,
    /// How it ended.
    pub ending: Ending,
}

impl Row {
    /// Whether an upstream may have heard of it: one that none has is no request.
    #[must_use]
    pub fn is_real(&self) -> bool {
        match &self.ending {
            Ending::Closed { numbers, .. } => numbers.attempts != Some(0),
            Ending::Interrupted(seen) => seen.attempts > 0,
        }
    }
}
