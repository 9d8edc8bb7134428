"""llama-cpp-python's server: another one around the same engine."""

from harness.tiny_model import write_tiny_model
from real.server import HOST, Server

SERVER = Server(
    name="llama-cpp-python",
    title="llama-cpp-python",
    package="llama-cpp-python",
    requirements=[["install", "llama-cpp-python[server]"]],
    prepare=lambda place, behind: write_tiny_model(place.gguf),
    command=lambda place: [
        str(place.python), "-m", "llama_cpp.server", "--model", str(place.gguf), "--model_alias", "tiny",
        "--host", HOST, "--port", str(place.port), "--n_ctx", "8192", "--n_threads", "1",
    ],
    tools=False,
    stream_usage=False,
    long=7000,
    deviations=[
        "It ignores `include_usage`: the tokens of streams are estimated, and the log line says `estimated`.",
        "A prompt that is too long is status 200 with an empty stream: the next route is tried, or the "
        "client gets a 502 `empty`.",
        "It does not parse calls: what a model calls is text.",
    ],
)  # fmt: skip
