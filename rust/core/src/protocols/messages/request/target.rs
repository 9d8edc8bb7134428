//! What an upstream that speaks Messages wants to be sent.

/// How its models are told to think.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThinkingForm {
    /// `thinking: {"type": "adaptive"}` with an effort: Anthropic's models from 4.6 on.
    #[default]
    Adaptive,
    /// `thinking: {"type": "enabled"}` with a budget of tokens: the models before.
    Budget,
    /// Not at all: an effort is left out.
    None,
}

/// Whether it is asked to keep the prompt in its cache, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// Only where the client says so.
    #[default]
    Off,
    /// For five minutes.
    FiveMinutes,
    /// For an hour.
    OneHour,
}

/// What becomes of members that nobody here knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// They are the vendor's own, and go up.
    #[default]
    Pass,
    /// They are left out: Anthropic refuses what it does not know.
    Drop,
}

/// What an upstream that speaks Messages wants to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagesTarget {
    /// The bound on output tokens for clients that give none: the protocol requires one.
    pub max_tokens: u64,
    /// How its models are told to think.
    pub thinking: ThinkingForm,
    /// Whether it checks signatures: only reasoning that such an upstream has signed goes back to it.
    pub signed: bool,
    /// Whether it takes messages of the system's between others.
    pub inline_system: bool,
    /// Whether it is asked to keep the prompt in its cache.
    pub cache: Cache,
    /// What becomes of members that nobody here knows.
    pub rest: Rest,
}

impl Default for MessagesTarget {
    fn default() -> Self {
        MessagesTarget {
            max_tokens: 8192,
            thinking: ThinkingForm::default(),
            signed: true,
            inline_system: false,
            cache: Cache::default(),
            rest: Rest::default(),
        }
    }
}
