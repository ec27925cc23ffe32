"""Text generation, with the model of tests/data/generation."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pytest

import fxc

DATA = pathlib.Path(__file__).parents[2] / "tests" / "data" / "generation"
CASES = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def model() -> fxc.Model:
    return fxc.load(DATA / "model.pt2", threads=1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["prompt"])
def test_tokens_are_those_of_transformers(model: fxc.Model, case: dict[str, Any]) -> None:
    tokens = model.generate(case["prompt_tokens"], max_new_tokens=96, stop=case["stop"])
    assert list(tokens) == case["tokens"]
    assert tokens.prompt_tokens == len(case["prompt_tokens"])
    # The end token is computed too, unless the caches are full before it.
    assert tokens.decoded_tokens in (len(case["tokens"]) - 1, len(case["tokens"]))
    assert tokens.prefill_seconds > 0 and tokens.decode_seconds > 0


def test_tokens_are_computed_one_by_one(model: fxc.Model) -> None:
    case = CASES[0]
    tokens = model.generate(np.array([case["prompt_tokens"]]))
    assert [next(tokens), next(tokens)] == case["tokens"][:2]
    assert tokens.decoded_tokens == 1
    # Two texts at a time do not share caches.
    other = model.generate(CASES[1]["prompt_tokens"], max_new_tokens=5)
    assert [next(other), next(tokens), next(other)] == [CASES[1]["tokens"][0], case["tokens"][2], CASES[1]["tokens"][1]]


def test_sampling_follows_its_seed(model: fxc.Model) -> None:
    def sample(seed: int) -> list[int]:
        return list(model.generate([40], max_new_tokens=20, temperature=30.0, seed=seed))

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_wrong_prompts_are_refused(model: fxc.Model) -> None:
    with pytest.raises(ValueError, match="one prompt at a time"):
        model.generate(np.zeros((2, 3), np.int64))
    with pytest.raises(fxc.InputError):
        model.generate([])
    with pytest.raises(fxc.Error):
        next(model.generate([5000]))
