"""Threads, forks, pickles, signals, and life without PyTorch."""

from __future__ import annotations

import os
import pathlib
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import fxc

ADD = """graph main {
    %x : f32[N, 2] = placeholder x
    %y = call_function torch.add(%x, 1)
    output %y
}"""
COUNTER = """const total : f32[2] = [0, 0]
graph main {
    %x : f32[2] = placeholder x
    %t = get_attr total
    %u = call_method add_(%t, %x)
    output %t
}"""


def run_python(code: str, **env: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_threads_call_at_the_same_time() -> None:
    model = fxc.loads(ADD)
    wrong: list[int] = []

    def call(n: int) -> None:
        x = np.full((n, 2), n, np.float32)
        wrong.extend(n for _ in range(50) if not np.array_equal(model(x), x + 1))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_the_interpreter_is_free_while_fxc_works() -> None:
    text = """graph main {
        %x : f32[1500, 1500] = placeholder x
        %y = call_function torch.matmul(%x, %x)
        %z = call_function torch.matmul(%y, %x)
        output %z
    }"""
    model = fxc.loads(text, threads=1)
    x = np.zeros((1500, 1500), np.float32)
    model(x)
    counted, done = [0], threading.Event()

    def count() -> None:
        while not done.is_set():
            counted[0] += 1
            done.wait(0.0005)

    counter = threading.Thread(target=count)
    counter.start()
    before = counted[0]
    for _ in range(3):
        model(x)
    during = counted[0] - before
    done.set()
    counter.join()
    assert during >= 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_calls_models_and_sessions() -> None:
    code = f"""
import os, numpy as np, fxc
model = fxc.loads({ADD!r}, threads=2)
x = np.ones((100000, 2), np.float32)
model(x)
session = fxc.loads({COUNTER!r}, threads=2).session()
session(np.ones(2, np.float32))
child = os.fork()
if child == 0:
    ok = np.array_equal(model(x), x + 1) and np.array_equal(session(np.ones(2, np.float32)), [2, 2])
    del model, session
    os._exit(0 if ok else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert np.array_equal(model(x), x + 1)
print("done")
"""
    assert run_python(code) == "done\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_while_a_thread_runs_is_refused_with_words() -> None:
    code = """
import os, threading, time, numpy as np, fxc
text = '''graph main {
    %x : f32[1200, 1200] = placeholder x
    %y = call_function torch.matmul(%x, %x)
    output %y
}'''
session = fxc.loads(text, threads=1).session()
x = np.zeros((1200, 1200), np.float32)
go = True
def work():
    while go:
        session(x)
thread = threading.Thread(target=work)
thread.start()
time.sleep(0.2)
# The thread is within the library nearly all of the time.
refused = 0
for _ in range(8):
    child = os.fork()
    if child == 0:
        try:
            session(x)
            os._exit(0)
        except RuntimeError as e:
            os._exit(7 if "forked" in str(e) and "spawn" in str(e) else 1)
    refused += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
go = False
thread.join()
print("refused" if refused else "never")
"""
    assert run_python(code) == "refused\n"


def test_threads_are_counted() -> None:
    code = "import fxc; print(fxc.get_num_threads())"
    assert run_python(code, OMP_NUM_THREADS="3,2") == "3\n"
    assert run_python(code, OMP_NUM_THREADS="many") == run_python(code, OMP_NUM_THREADS="")
    if hasattr(os, "sched_setaffinity"):
        first = min(os.sched_getaffinity(0))
        pinned = f"import os; os.sched_setaffinity(0, {{{first}}}); {code}"
        assert run_python(pinned, OMP_NUM_THREADS="") == "1\n"


def test_models_follow_the_number_of_threads() -> None:
    before = fxc.get_num_threads()
    model = fxc.loads(ADD)
    x = np.ones((100000, 2), np.float32)
    try:
        for n in [1, 3, 2]:
            fxc.set_num_threads(n)
            assert fxc.get_num_threads() == n
            np.testing.assert_array_equal(model(x), x + 1)
    finally:
        fxc.set_num_threads(before)
    with pytest.raises(ValueError, match="positive"):
        fxc.set_num_threads(0)


def test_a_model_of_a_file_is_pickled(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "add.fxir"
    path.write_text(ADD)
    model = pickle.loads(pickle.dumps(fxc.load(path, exact=True, dims={"N": 1})))
    np.testing.assert_array_equal(model(np.ones((1, 2), np.float32)), [[2, 2]])
    with pytest.raises(fxc.InputError):
        model(np.ones((2, 2), np.float32))


def test_a_model_without_a_file_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="has no file.*model.save"):
        pickle.dumps(fxc.loads(ADD))


def test_without_torch(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "add.fxir"
    path.write_text(ADD)
    code = f"""
import sys
sys.modules["torch"] = None  # an import of it fails
import numpy as np, fxc
model = fxc.load({str(path)!r})
assert np.array_equal(model(np.ones((1, 2), np.float32)), [[2, 2]])
try:
    fxc.compile(lambda x: x, 1)
except ImportError as e:
    assert "pip install torch" in str(e)
    print("done")
"""
    assert run_python(code) == "done\n"


def test_torch_is_not_imported_for_arrays() -> None:
    code = f"""
import sys, numpy as np, fxc
fxc.loads({ADD!r})(np.ones((1, 2), np.float32))
print("torch" in sys.modules)
"""
    assert run_python(code) == "False\n"


def test_progress_is_shown_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import time

    from fxc import _progress

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    # With this module, the package takes the process for a notebook's.
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    for stream, shown in [(io.StringIO(), False), (Terminal(), True)]:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(_progress, "PATIENCE", 0.0)
        watch = _progress.start("compiling net")
        while shown and not stream.getvalue():
            time.sleep(0.001)
        watch.stop()
        assert ("compiling net" in stream.getvalue()) is shown
        assert not shown or stream.getvalue().endswith(" \r")


LOOP = """graph main {
    %x : f32[8, 8] = placeholder x
    %n : i64[] = placeholder n
    %w = call_function torch.while_loop(@more, @step, (%n, %x), ())
    %y = call_function operator.getitem(%w, 1)
    output %y
}
graph more {
    %n : i64[] = placeholder n
    %x : f32[8, 8] = placeholder x
    %t = call_function operator.gt(%n, 0)
    output %t
}
graph step {
    %n : i64[] = placeholder n
    %x : f32[8, 8] = placeholder x
    %m = call_function operator.sub(%n, 1)
    %y = call_function torch.matmul(%x, %x)
    output (%m, %y)
}"""


#: The loop runs in the interpreter, because it depends on a size that only the run knows.
INTERPRETED = LOOP.replace(
    "%w = call_function torch.while_loop(@more, @step, (%n, %x), ())",
    """%rows = call_function torch.nonzero(%n)
    %none = call_function torch.mul(%rows, 0)
    %zero = call_function torch.sum(%none)
    %start = call_function operator.add(%n, %zero)
    %w = call_function torch.while_loop(@more, @step, (%start, %x), ())""",
)


@pytest.mark.torch
def test_ctrl_c_ends_a_compiled_part_of_a_graph() -> None:
    """Not an error of the part, after which PyTorch would run it."""
    text = LOOP.replace("output %y\n", "output (%y,)\n", 1)
    code = f"""
import os, signal, threading, torch, fxc
from fxc._fxc import Part
part = Part({text!r}, {{}}, [(0, None), (1, None)], [None])
x = torch.eye(8)
assert torch.equal(part([x, torch.tensor(5)])[0], x)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    part([x, torch.tensor(10**15)])  # for years
except KeyboardInterrupt:
    print("interrupted")
assert torch.equal(part([x, torch.tensor(5)])[0], x)
"""
    assert run_python(code) == "interrupted\n"


@pytest.mark.parametrize("tool", ["profile({})", "bisect({})", "bisect({}, passes=True)"])
@pytest.mark.parametrize("text", [LOOP, INTERPRETED], ids=["compiled", "interpreted"])
def test_ctrl_c_ends_tools(text: str, tool: str) -> None:
    code = f"""
import os, signal, threading, warnings, numpy as np, fxc
warnings.simplefilter("ignore", fxc.CompileWarning)
model = fxc.loads({text!r})
x = np.eye(8, dtype=np.float32)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    model.{tool.format("x, np.array(10**15)")}
except KeyboardInterrupt:
    print("interrupted")
assert np.array_equal(model(x, np.array(5)), x)
"""
    assert run_python(code) == "interrupted\n"


@pytest.mark.parametrize("text", [LOOP, INTERPRETED], ids=["compiled", "interpreted"])
def test_ctrl_c_ends_a_long_call(text: str) -> None:
    code = f"""
import os, signal, threading, warnings, numpy as np, fxc
warnings.simplefilter("ignore", fxc.CompileWarning)
model = fxc.loads({text!r})
x = np.eye(8, dtype=np.float32)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    model(x, np.array(10**15))  # for years
except KeyboardInterrupt:
    print("interrupted")
assert np.array_equal(model(x, np.array(5)), x)
session = model.session()
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    session(x, np.array(10**15))
except KeyboardInterrupt:
    print("interrupted")
"""
    assert run_python(code) == "interrupted\ninterrupted\n"
