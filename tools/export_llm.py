#!/usr/bin/env python3
"""Exports a language model of transformers as an archive that `fxc generate` runs.

    python tools/export_llm.py Qwen/Qwen2-0.5B -o qwen.pt2
    fxc generate qwen.pt2 --tokenizer tokenizer.json --prompt "Once upon a time"

MODEL is a local folder or the name of a checkpoint. The archive has one graph for prompts of any length and for single tokens, with
caches of keys and values of a fixed length as buffers. Its inputs are `input_ids` (1, n) and `cache_position` (n); its result is the
scores of the last token. `--random` takes only the configuration, and random weights.

Tested with Llama, Qwen2, Qwen3, Gemma 2, Gemma 3, Mistral, Phi-3, GPT-2 and Mixtral; needs torch 2.15 and transformers 5.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
from transformers.cache_utils import StaticCache, StaticLayer

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Decoder(torch.nn.Module):
    """A language model with its caches as buffers."""

    def __init__(self, model: Any, cache_length: int) -> None:
        super().__init__()
        self.model = model
        # Its name changed in transformers 5.24.
        self.parameter = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        config = model.config.get_text_config()
        self.cache = StaticCache(config=config, max_cache_len=cache_length)
        # Layers with a window decide in Python what to keep, which an export cannot record. With caches of the full length, the mask
        # alone implements the window.
        layers: Any = [StaticLayer(cache_length) for _ in self.cache.layers]
        self.layers, self.cache.layers = layers, layers
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.cache.early_initialization(1, heads, size, model.dtype, model.device)
        for i, layer in enumerate(layers):
            self.register_buffer(f"keys_{i}", layer.keys, persistent=False)
            self.register_buffer(f"values_{i}", layer.values, persistent=False)
            self.register_buffer(f"length_{i}", layer.cumulative_length, persistent=False)

    def forward(self, input_ids: torch.Tensor, cache_position: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            layer.cumulative_length.copy_(cache_position[0])
        out = self.model(input_ids=input_ids, use_cache=True, logits_to_keep=1, **{self.parameter: self.cache})
        return out.logits


def export(model: Any, cache_length: int) -> torch.export.ExportedProgram:
    """The program of a model in evaluation mode, for 1 to `cache_length` tokens."""
    decoder = Decoder(model.eval(), cache_length)
    # Example sizes of 1 would be taken for constants.
    count = min(3, cache_length)
    inputs = {"input_ids": torch.zeros(1, count, dtype=torch.long), "cache_position": torch.arange(count)}
    length = torch.export.Dim("length", min=1, max=cache_length)
    shapes = {"input_ids": {1: length}, "cache_position": {0: length}}
    with torch.no_grad():
        return torch.export.export(decoder, (), inputs, dynamic_shapes=shapes, strict=True)


def load(name: str, dtype: torch.dtype, random: bool) -> Any:
    if random:
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name), dtype=dtype)
    else:
        model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
    return model


def stop_tokens(model: Any, name: str) -> list[int]:
    """The tokens that end a text."""
    try:
        config = GenerationConfig.from_pretrained(name)
    except OSError:
        config = model.generation_config
    ends = config.eos_token_id
    return [] if ends is None else list(ends) if isinstance(ends, list) else [ends]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="a folder or the name of a checkpoint")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the archive to write, such as model.pt2")
    parser.add_argument("--cache", type=int, default=2048, metavar="LENGTH", help="tokens that the caches hold [default: 2048]")
    parser.add_argument("--dtype", choices=DTYPES, default="f32", help="dtype of weights and caches [default: f32]")
    parser.add_argument("--random", action="store_true", help="take only the configuration, and random weights")
    parser.add_argument("--seed", type=int, default=0, help="seed of random weights [default: 0]")
    args = parser.parse_args(arguments)
    if args.cache < 2:
        parser.error("the caches must hold at least two tokens")
    torch.manual_seed(args.seed)
    model = load(args.model, DTYPES[args.dtype], args.random)
    torch.export.save(export(model, args.cache), args.output)
    stops = ",".join(map(str, stop_tokens(model, args.model)))
    tokenizer = os.path.join(args.model, "tokenizer.json")
    shown = f"--tokenizer {tokenizer} --prompt ..." if os.path.isfile(tokenizer) else "--prompt-tokens ..."
    print(f"fxc generate {args.output} {shown}" + (f" --stop-tokens {stops}" if stops else ""), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
