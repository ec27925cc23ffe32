"""Writes generation/: a language model that knows a poem, its tokenizer, and what it generates.

    python tests/data/make_generation.py

The tests generate text without torch from these files, and docs/generation.md walks through them. The model is a Llama of two layers,
trained on the poem for a minute, so that the most probable token is far ahead of all others. `expected.json` has the tokens of
transformers' greedy `generate`. Needs: torch, transformers, tokenizers.
"""

import io
import json
import os
import sys
import zipfile

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "generation")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools"))

import export_llm

VOCABULARY = 320
CACHE = 96
END = "<end>"
# Jane Taylor, The Star, 1806. The accents make characters of several tokens.
POEM = """Twinkle, twinkle, little star,
How I wonder what you are!
Up above the world so high,
Like a diamond in the sky.
Étoile, étoile, brille là-haut.
"""


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet)
    tokenizer.train_from_iterator([POEM], trainer)
    return tokenizer


def train(tokenizer):
    torch.manual_seed(0)
    end = tokenizer.token_to_id(END)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CACHE,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=end,
    )
    model = LlamaForCausalLM(config)
    ids = torch.tensor([tokenizer.encode(POEM).ids + [end]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
    for _ in range(400):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}, {ids.shape[1]} tokens")
    return model.eval()


def small_archive(program):
    """The archive without Python's stacks, deflated."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                for key in ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node", "torch_fn"):
                    node.meta.pop(key, None)
    whole = io.BytesIO()
    torch.export.save(program, whole)
    small = io.BytesIO()
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(small, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(entry, old.read(name))
    return small.getvalue()


def expected(tokenizer, model, prompt):
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    # The last token need not be in the caches.
    count = CACHE - ids.shape[1] + 1
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False)
    tokens = out[0, ids.shape[1]:].tolist()
    # fxc does not return the token that ends the text.
    end = tokenizer.token_to_id(END)
    tokens = tokens[: tokens.index(end)] if end in tokens else tokens
    return {"prompt": prompt, "prompt_tokens": ids[0].tolist(), "tokens": tokens, "text": tokenizer.decode(tokens), "stop": end}


def main():
    os.makedirs(OUT, exist_ok=True)
    tokenizer = make_tokenizer()
    model = train(tokenizer)
    cases = [expected(tokenizer, model, prompt) for prompt in ("Twinkle", "How I", "Up above the world")]
    for case in cases:
        print(repr(case["prompt"] + case["text"]))
    tokenizer.save(os.path.join(OUT, "tokenizer.json"), pretty=False)
    with open(os.path.join(OUT, "model.pt2"), "wb") as f:
        f.write(small_archive(export_llm.export(model, CACHE)))
    with open(os.path.join(OUT, "expected.json"), "w", encoding="utf-8") as f:
        json.dump(cases, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
