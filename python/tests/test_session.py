"""State from call to call."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import fxc

COUNTER = """const total : f32[2] = [1, 0]
graph main {
    %x : f32[N, 2] = placeholder x
    %t = get_attr total
    %s = call_function torch.sum(%x, 0)
    %u = call_method add_(%t, %s)
    output %t
}"""


def test_calls_forget_and_sessions_remember() -> None:
    model = fxc.loads(COUNTER)
    x = np.ones((2, 2), np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(model(x), [3, 2])
    session = model.session()
    first = session(x)
    np.testing.assert_array_equal(session(x), [5, 4])
    np.testing.assert_array_equal(first, [3, 2])
    np.testing.assert_array_equal(session(x[:1]), [6, 5])
    session.reset()
    np.testing.assert_array_equal(session(x=x), [3, 2])
    assert "Session" in repr(session)


def test_writing_to_a_result_does_not_change_the_state() -> None:
    session = fxc.loads(COUNTER).session()
    x = np.ones((2, 2), np.float32)
    session(x)[:] = 100
    np.testing.assert_array_equal(session(x), [5, 4])


def test_state_is_read_and_set() -> None:
    model = fxc.loads(COUNTER)
    session = model.session()
    x = np.ones((2, 2), np.float32)
    session(x)
    state = session.state_dict()
    assert list(state) == ["total"]
    np.testing.assert_array_equal(np.asarray(state["total"]), [3, 2])
    state["total"][:] = -1
    np.testing.assert_array_equal(session(x), [5, 4])
    other = model.session()
    other.load_state_dict({"total": np.array([10, 20], np.float32)})
    np.testing.assert_array_equal(other(x), [12, 22])
    with pytest.raises(fxc.Error, match="totl"):
        other.load_state_dict({"totl": np.zeros(2, np.float32)})
    with pytest.raises(fxc.Error):
        other.load_state_dict({"total": np.zeros(3, np.float32)})
    with pytest.raises(TypeError, match="neither a tensor nor an array"):
        other.load_state_dict({"total": "zero"})


def test_state_is_of_the_library_that_is_loaded() -> None:
    session = fxc.loads(COUNTER).session()
    session(np.ones((2, 2), np.float32))
    kind = type(session.state_dict()["total"])
    assert kind.__module__.partition(".")[0] == ("torch" if "torch" in sys.modules else "numpy")
