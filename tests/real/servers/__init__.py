"""All servers, by the name of their make target."""

from real.servers import guidellm, llama_cpp, llama_cpp_python, llms_py, transformers, vllm

SERVERS = {
    module.SERVER.name: module.SERVER
    for module in (llama_cpp, vllm, transformers, llama_cpp_python, llms_py, guidellm)
}
