//! Text completions, which came before Chat Completions. Their chunks are of the same form, but for the text.

use crate::api::Api;
use crate::protocol::Protocol;

/// `/v1/completions`
pub struct Completions;

impl Protocol for Completions {
    fn api(&self) -> Api {
        Api::Completions
    }

    fn path(&self) -> &'static str {
        "/v1/completions"
    }

    fn asks_usage(&self) -> bool {
        true
    }

    fn folds(&self) -> bool {
        true
    }
}
