"""The endpoints that are relayed to upstreams."""

RESPONSES_PATH = "/v1/responses"

RELAYED = {
    "/v1/chat/completions": "chat_completions",
    RESPONSES_PATH: "responses",
    "/v1/completions": "completions",
    "/v1/embeddings": "embeddings",
    "/v1/messages": "messages",
    "/v1/messages/count_tokens": "count_tokens",
}
"""The endpoint at each path, by the name that logs and metrics show."""

OF_ANTHROPIC = frozenset({"messages", "count_tokens"})
"""Those of the Messages API."""
