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
    refused={"surprise": 1},
    long=2000,
    deviations=[
        "Its streams of chat have no `[DONE]`, which the gateway adds, and the usage is in the last chunk of "
        "a choice; its Responses events have no `event:` lines, and begin as queued.",
        "It serves one request at a time and answers the others with a head at once: `first_token` has to "
        "outlast the reply before.",
        "Members that it does not know are a 422, and a value that it cannot use is a 500, after which it "
        "drops the connection.",
        "It knows the calls of some families of models only: what others call is text.",
        "Replies name the model with `@main` behind it; `reply_model: public` shows the public name.",
    ],
)  # fmt: skip
