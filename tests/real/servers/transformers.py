"""`transformers serve`."""

from harness.tiny_hf_model import write_tiny_hf_model
from real.server import HOST, Place, Server


def _environ(place: Place) -> dict[str, str]:
    home = place.directory / "home"
    (home / "hub").mkdir(parents=True, exist_ok=True)
    return {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}


SERVER = Server(
    name="transformers",
    title="transformers serve",
    package="transformers",
    requirements=[["install", "torch", "transformers[serving]"]],
    prepare=lambda place, behind: write_tiny_hf_model(place.hf),
    command=lambda place: [
        place.program("transformers"), "serve", str(place.hf), "--host", HOST, "--port", str(place.port),
        "--device", "cpu",
    ],
    environ=_environ,
    model=lambda place: str(place.hf),
    apis=("chat", "responses"),
    tools=False,
    long={"max_tokens": 4000, "max_output_tokens": 4000},
)  # fmt: skip
