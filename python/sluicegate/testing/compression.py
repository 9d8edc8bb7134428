"""Content codings, flushed after each write so that events are not held back by them."""

import importlib
import zlib
from typing import Any

from sluicegate.testing.reading import ScriptError
from sluicegate.testing.script import Compression

# The packages that are asked for codings which the standard library has not.
_PACKAGES = {"br": "brotli", "zstd": "zstandard"}


class Compressor:
    """One body's compression. Raises ScriptError where the coding needs a package that is not installed."""

    def __init__(self, coding: Compression) -> None:
        self._coding = coding
        self._codec: Any
        match coding:
            case "gzip":
                self._codec = zlib.compressobj(wbits=31)
            case "deflate":
                # RFC 9110, section 8.4.1.2: "deflate" is the zlib format around a deflate stream.
                self._codec = zlib.compressobj(wbits=15)
            case _:
                try:
                    package: Any = importlib.import_module(_PACKAGES[coding])
                except ImportError:
                    message = f"script.compression: {coding} needs the package {_PACKAGES[coding]}"
                    raise ScriptError(message) from None
                if coding == "br":
                    self._codec = package.Compressor()
                else:
                    self._codec = package.ZstdCompressor().compressobj()
                    self._flush_block = package.COMPRESSOBJ_FLUSH_BLOCK

    def flushed(self, data: bytes) -> bytes:
        """The bytes with which a decoder gives out all of `data` at once."""
        if self._coding == "br":
            return bytes(self._codec.process(data) + self._codec.flush())
        if self._coding == "zstd":
            return bytes(self._codec.compress(data) + self._codec.flush(self._flush_block))
        return bytes(self._codec.compress(data) + self._codec.flush(zlib.Z_SYNC_FLUSH))

    def end(self) -> bytes:
        return bytes(self._codec.finish() if self._coding == "br" else self._codec.flush())

    def whole(self, data: bytes) -> bytes:
        """A whole body."""
        return self.flushed(data) + self.end()
