"""What a price is worked out from. Anything with this shape will do."""

from typing import Protocol


class UsageLike(Protocol):
    """Token counts in the normal form: input includes what a cache had a part in, output includes reasoning.

    None means not reported, which is not zero.
    """

    @property
    def input_tokens(self) -> int | None: ...
    @property
    def cached_input_tokens(self) -> int | None:
        """Part of `input_tokens`."""

    @property
    def cache_write_tokens(self) -> int | None:
        """Part of `input_tokens`; no token is both read from a cache and written to it."""

    @property
    def cache_write_1h_tokens(self) -> int | None:
        """Part of `cache_write_tokens`."""

    @property
    def output_tokens(self) -> int | None: ...
    @property
    def reasoning_tokens(self) -> int | None:
        """Part of `output_tokens`."""

    @property
    def input_audio_tokens(self) -> int | None: ...
    @property
    def output_audio_tokens(self) -> int | None: ...
    @property
    def input_image_tokens(self) -> int | None: ...
    @property
    def output_image_tokens(self) -> int | None: ...
