"""The tiny model as a folder in Hugging Face's form, for servers that load no GGUF."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import save_file

from harness.tiny_model import CONTEXT, TEMPLATE, TinyModel, tiny_model


def write_tiny_hf_model(directory: Path) -> None:
    """Write the model with its tokenizer and its template: 0.4 MB."""
    model = tiny_model()
    directory.mkdir(parents=True, exist_ok=True)
    save_file(_tensors(model), directory / "model.safetensors", metadata={"format": "pt"})
    tokens = {"bos_token": model.tokens[model.start].text, "eos_token": model.tokens[model.end].text}
    files = {
        "config.json": _config(model),
        "generation_config.json": {"bos_token_id": model.start, "eos_token_id": model.end},
        "tokenizer.json": _tokenizer(model),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": CONTEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": TEMPLATE,
            "pad_token": tokens["eos_token"],
            "unk_token": model.tokens[0].text,
            **tokens,
        },
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content))
    (directory / "chat_template.jinja").write_text(TEMPLATE)


def _config(model: TinyModel) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": model.width,
        "intermediate_size": model.width,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": model.width,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": CONTEXT,
        "vocab_size": len(model.tokens),
        "tie_word_embeddings": False,
        "bos_token_id": model.start,
        "eos_token_id": model.end,
        "pad_token_id": model.end,
        "dtype": "float32",
    }


def _tensors(model: TinyModel) -> "dict[str, np.ndarray[Any, np.dtype[np.float32]]]":
    square = (model.width, model.width)
    layer = "model.layers.0"
    names = [f"self_attn.{name}_proj" for name in ("q", "k", "v", "o")]
    names += [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    norms = (f"{layer}.input_layernorm", f"{layer}.post_attention_layernorm", "model.norm")
    return {
        "model.embed_tokens.weight": model.embedding,
        "lm_head.weight": model.output,
        **{f"{norm}.weight": np.ones(model.width, np.float32) for norm in norms},
        **{f"{layer}.{name}.weight": np.zeros(square, np.float32) for name in names},
    }


def _tokenizer(model: TinyModel) -> dict[str, Any]:
    """What is no token of its own is read byte by byte: there are no merges."""
    added = (gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": token.text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": token.kind == gguf.TokenType.CONTROL,
            }
            for number, token in enumerate(model.tokens)
            if token.kind in added
        ],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": model.tokens[0].text,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {token.text: number for number, token in enumerate(model.tokens)},
            "merges": [],
        },
    }
