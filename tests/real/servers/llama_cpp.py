"""llama.cpp's own server, from a wheel."""

from harness import llama_cpp
from harness.tiny_model import write_tiny_model
from real.server import Server

_CONTEXT = 32_768

SERVER = Server(
    name="llama-cpp",
    title="llama.cpp",
    package="xllamacpp",
    requirements=[["install", "xllamacpp"]],
    prepare=lambda place, behind: write_tiny_model(place.gguf),
    command=lambda place: [
        str(place.python), llama_cpp.__file__, str(place.gguf), str(place.port), str(_CONTEXT),
    ],
    apis=("chat", "responses", "messages"),
    settings={"repair": True},
    long=_CONTEXT - 500,
    codes=True,
    deviations=[
        "Its Responses events lack `sequence_number`, `output_index` and `content_index`, and items end out "
        "of order; its Messages streams begin a block before the last one has ended. With `repair: true` "
        "both are written again.",
        "A response that was cut at the limit of tokens says that it is completed, and so it arrives.",
        "With `n` above 1 its usage counts one choice only, and so does the cost.",
        "Its Messages take `messages` that are a number or a text for an empty conversation.",
    ],
)  # fmt: skip
