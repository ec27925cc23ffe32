"""Text generation: python tests/torch/generation.py [FAMILY …] [--fxc target/release/fxc] [--tokens 64] [--keep DIR]

A small model of each family, with random weights, is exported by tools/export_llm.py and by transformers' own recipe for ExecuTorch
(strict and not), and `fxc generate` continues a prompt. The tokens must be those of transformers' greedy `generate`. Windows of
attention are shorter than the text. Needs: torch, transformers.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tools"))
# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
warnings.filterwarnings("ignore")

VOCABULARY = 199
PROMPT = [3, 17, 101, 42, 7, 8, 150]
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "initializer_range": 0.3,
    # Tied embeddings of random weights repeat one token.
    "tie_word_embeddings": False,
}
WINDOW = {"sliding_window": 16}


def configs(transformers):
    """The configuration of each family."""
    llama = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    gemma = {"head_dim": 16, "query_pre_attn_scalar": 16, **WINDOW}
    layers = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
    return {
        "llama": transformers.LlamaConfig(**SIZES, **llama),
        "qwen2": transformers.Qwen2Config(**SIZES),
        "qwen3": transformers.Qwen3Config(**SIZES, head_dim=16),
        "gemma2": transformers.Gemma2Config(**SIZES, **gemma),
        "gemma3": transformers.Gemma3TextConfig(**SIZES, **gemma, **layers),
        "mistral": transformers.MistralConfig(**SIZES, **WINDOW),
        "phi3": transformers.Phi3Config(**SIZES),
        "gpt2": transformers.GPT2Config(
            vocab_size=VOCABULARY, n_embd=48, n_layer=3, n_head=6, n_positions=256, bos_token_id=1, eos_token_id=None,
            initializer_range=0.3, tie_word_embeddings=False,
        ),
        "mixtral": transformers.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2),
    }


def expected(torch, model, count):
    with torch.no_grad():
        ids = torch.tensor([PROMPT])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False)
    return out[0, len(PROMPT):].tolist()


def recipe(torch, model, length, strict):
    """transformers' own export."""
    from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

    model.generation_config.use_cache = True
    model.generation_config.cache_implementation = "static"
    module = TorchExportableModuleForDecoderOnlyLM(model, batch_size=1, max_cache_len=length, device=torch.device("cpu"))
    size = torch.export.Dim("length", max=length - 1)
    shapes = {"input_ids": {1: size}, "cache_position": {0: size}}
    ids = torch.zeros(1, 3, dtype=torch.long)
    return module.export(input_ids=ids, cache_position=torch.arange(3), dynamic_shapes=shapes, strict=strict)


def generate(fxc, archive, count):
    prompt = ",".join(map(str, PROMPT))
    command = [fxc, "generate", archive, "--prompt-tokens", prompt, "--max-new-tokens", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip().splitlines()[0] if done.stderr.strip() else f"exit code {done.returncode}"
    return [int(token) for token in done.stdout.split()]


def verdict(got, want):
    if got == want:
        return "the same tokens"
    if isinstance(got, str):
        return f"FAILED: {got}"
    same = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    return f"FAILED: {same} of {len(want)} tokens are the same"


def forms(torch, export_llm, model, length):
    yield "export_llm", lambda: export_llm.export(model, length)
    yield "recipe, strict", lambda: recipe(torch, model, length, True)
    yield "recipe", lambda: recipe(torch, model, length, False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--fxc", default=os.path.join(ROOT, "target", "release", "fxc"))
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--keep", metavar="DIR", help="keep the archives in this folder")
    args = parser.parse_args()
    import export_llm
    import torch
    import transformers

    failed = done = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or temporary
        for family, config in configs(transformers).items():
            if args.families and family not in args.families:
                continue
            torch.manual_seed(0)
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
            want = expected(torch, model, args.tokens)
            print(f"{family:8} {len(set(want))} different tokens")
            for form, export in forms(torch, export_llm, model, 96):
                archive = os.path.join(folder, f"{family}-{form.replace(', ', '-')}.pt2")
                try:
                    torch.export.save(export(), archive)
                except Exception as e:
                    # Only the archives of our own tool are promised.
                    failed += form == "export_llm"
                    print(f"{family:8} {form:15} torch cannot export it: {str(e).splitlines()[0][:120]}")
                    continue
                said = verdict(generate(args.fxc, archive, args.tokens), want)
                done += 1
                failed += "FAILED" in said
                print(f"{family:8} {form:15} {said}", flush=True)
    print(f"{done - failed} of {done} archives generate transformers' tokens")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
