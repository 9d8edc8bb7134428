"""guidellm's mock server, which people try their load tests with."""

from real.server import HOST, Server

SERVER = Server(
    name="guidellm",
    title="guidellm mock-server",
    package="guidellm",
    requirements=[],
    # Benchmarks load their data with it, the server does without.
    unresolvable=["torch"],
    prepare=lambda place, behind: None,
    command=lambda place: [
        place.program("guidellm"), "mock-server", "--host", HOST, "--port", str(place.port),
        "--model", "tiny", "--ttft-ms", "20", "--itl-ms", "2", "--output-tokens", "16",
    ],
    environ=lambda place: {"HOME": str(place.directory), "HF_HUB_OFFLINE": "1"},
    apis=("chat", "responses"),
    tools=False,
    answer="Score each cause. Quality throughout beautiful instead.\n",
    deviations=[
        "A reply is at most as long as the server was told at its start, whatever the limit of tokens.",
        "Its response streams lack `response.content_part.done`, and their events the members `annotations`, "
        "`logprobs` and, of responses, all that repeats the request; so they arrive, unless `repair: true`.",
        "As a client (`guidellm run`) it asks for `/health` before all else, which the gateway answers.",
    ],
)  # fmt: skip
