"""What a routing policy may know of a request."""


class Facts:
    """Of one that asks for a stream; `headers` by names with `_` for `-`."""

    endpoint = "chat_completions"
    stream = True
    max_output_tokens = None
    input_tokens_estimate = None
    user = None

    def __init__(self, affinity: int | None = None, size: int = 400, **headers: str) -> None:
        self.affinity = affinity
        self.size = size
        """Bytes: four of them are about a token."""
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
