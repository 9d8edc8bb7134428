//! Embeddings: always whole, and forwarded only.

use crate::api::Api;
use crate::protocol::Protocol;

/// `/v1/embeddings`
pub struct Embeddings;

impl Protocol for Embeddings {
    fn api(&self) -> Api {
        Api::Embeddings
    }

    fn path(&self) -> &'static str {
        "/v1/embeddings"
    }
}
