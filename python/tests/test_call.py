"""Calls with numpy arrays."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import fxc

ADD = """graph main {
    %x : f32[N, 2] = placeholder x
    %y : f32[2] = placeholder y
    %z = call_function torch.add(%x, %y)
    output %z
}"""


def identity(dtype: str, shape: str = "*") -> fxc.Model:
    return fxc.loads(
        f"graph main {{ %x : {dtype}[{shape}] = placeholder x  %y = call_function torch.reshape(%x, [-1])  output %y }}"
    )


def test_arguments_by_position_and_by_name() -> None:
    model = fxc.loads(ADD)
    x, y = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([10, 20], np.float32)
    for z in [model(x, y), model(x, y=y), model(y=y, x=x)]:
        assert isinstance(z, np.ndarray) and z.dtype == np.float32
        np.testing.assert_array_equal(z, x + y)


def test_a_file_is_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "add.fxir"
    path.write_text(ADD)
    model = fxc.load(path)
    assert model.path == path and repr(model) == "<fxc.Model add(x, y)>"
    np.testing.assert_array_equal(model(np.ones((1, 2), np.float32), np.ones(2, np.float32)), [[2, 2]])


def test_a_compiled_model_is_saved_and_loaded(tmp_path: pathlib.Path) -> None:
    weights = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
    graph = fxc.loads(
        """graph main {
        %x : f32[N, 2] = placeholder x
        %w : f32[2, 5] = get_attr w
        %y = call_function torch.matmul(%x, %w)
        output {"y": %y}
    }""",
        lazy=True,
    )
    graph.add_parameter("w", weights)
    graph.save(tmp_path / "linear.fxc")
    model = fxc.load(tmp_path / "linear.fxc")
    for rows in [1, 7]:
        x = np.ones((rows, 2), np.float32)
        np.testing.assert_allclose(model(x)["y"], x @ weights, rtol=1e-6)
    np.testing.assert_array_equal(model.state_dict()["w"], weights)

    damaged = (tmp_path / "linear.fxc").read_bytes()
    (tmp_path / "damaged.fxc").write_bytes(damaged[: len(damaged) // 2])
    with pytest.raises(fxc.Error, match="E0409"):
        fxc.load(tmp_path / "damaged.fxc")


BASE = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
VIEWS = {
    "dense": BASE,
    "transposed": BASE.transpose(2, 0, 1),
    "steps": BASE[:, ::2, 1::2],
    "reversed": BASE[::-1, :, ::-1],
    "broadcast": np.broadcast_to(np.float32([1, 2, 3]), (4, 3)),
    "fortran": np.asfortranarray(BASE),
    "offset": BASE[1:, 1:, 1:],
    "zero size": BASE[:, :0],
    "0-d": np.array(7, np.float32),
    "column of a record": np.array([(1, 2.0), (3, 4.0)], dtype=[("i", "i1"), ("x", "f4")])["x"],
    "not aligned": np.frombuffer(b"\0" + np.arange(3, dtype=np.float32).tobytes(), np.uint8)[1:].view(np.float32),
    "memory map": np.memmap,
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_read_in_their_own_order(name: str, tmp_path: pathlib.Path) -> None:
    x = VIEWS[name]
    if name == "memory map":
        np.save(tmp_path / "x.npy", BASE)
        x = np.load(tmp_path / "x.npy", mmap_mode="r")
    model = identity("f32", ", ".join(f"N{i}" for i in range(x.ndim)))
    np.testing.assert_array_equal(model(x), x.reshape(-1))


def test_inputs_are_not_written() -> None:
    x = np.ones(4, np.float32)
    x.flags.writeable = False
    text = "graph main { %x : f32[4] = placeholder x  %y = call_method add_(%x, 1)  output %y }"
    np.testing.assert_array_equal(fxc.loads(text)(x), [2, 2, 2, 2])
    np.testing.assert_array_equal(x, [1, 1, 1, 1])


def test_a_result_is_no_view_of_an_input_or_a_constant() -> None:
    text = """const c : f32[2] = [1, 2]
    graph main { %x : f32[2] = placeholder x  %c = get_attr c  output (%x, %c) }"""
    model = fxc.loads(text)
    x = np.zeros(2, np.float32)
    y, c = model(x)
    y[:] = 5
    c[:] = 6
    np.testing.assert_array_equal(x, [0, 0])
    np.testing.assert_array_equal(model(x)[1], [1, 2])


def test_results_stay_as_they_are() -> None:
    model = fxc.loads(ADD)
    y = np.zeros(2, np.float32)
    results = [model(np.full((3, 2), i, np.float32), y) for i in range(5)]
    for i, r in enumerate(results):
        r += 0.5
        np.testing.assert_array_equal(r, np.full((3, 2), i + 0.5, np.float32))


DTYPES = ["f64", "f32", "f16", "i64", "i32", "i16", "i8", "u8", "b8"]
NUMPY = {"b": "bool", "f": "float", "i": "int", "u": "uint"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype: str) -> None:
    name = "bool" if dtype == "b8" else NUMPY[dtype[0]] + dtype[1:]
    x = np.array([[0, 1], [1, 0]], name)
    y = identity(dtype, "2, 2")(x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x.reshape(-1))


def test_integers_of_the_same_size_are_the_same() -> None:
    for kind in (np.longlong, np.int_, np.int64):
        np.testing.assert_array_equal(identity("i64", "2")(np.array([1, 2], kind)), [1, 2])


def test_bfloat16_is_that_of_ml_dtypes() -> None:
    text = "graph main { %x : f32[2] = placeholder x  %y = call_method bfloat16(%x)  output %y }"
    model = fxc.loads(text)
    x = np.array([1.0, 2.5], np.float32)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    y = model(x)
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(y.astype(np.float32), x)
    np.testing.assert_array_equal(identity("bf16", "2")(y).astype(np.float32), x)


def test_wrong_types_are_errors_and_not_casts() -> None:
    model = fxc.loads(ADD)
    y = np.zeros(2, np.float32)
    with pytest.raises(fxc.InputError, match="must be f32") as e:
        model(np.zeros((3, 2)), y)
    assert e.value.code == "E0503" and isinstance(e.value, ValueError)
    with pytest.raises(fxc.InputError, match="E0504"):
        model(np.zeros((3, 3), np.float32), y)
    with pytest.raises(TypeError, match="`x`.*byte order"):
        model(np.zeros((3, 2), ">f4"), y)
    with pytest.raises(TypeError, match="`x`.*does not support numpy's dtype"):
        model(np.zeros((3, 2), "U4"), y)
    with pytest.raises(TypeError, match="masked"):
        model(np.ma.masked_array(np.zeros((3, 2), np.float32), False), y)
    with pytest.raises(TypeError, match="`x` has type object"):
        model(object(), y)


def test_arguments_that_do_not_fit_are_type_errors() -> None:
    model = fxc.loads(ADD)
    x = np.zeros((1, 2), np.float32)
    with pytest.raises(TypeError, match=r"missing argument `y`.*\(x, y\)"):
        model(x)
    with pytest.raises(TypeError, match="takes 2 positional arguments, but 3"):
        model(x, x, x)
    with pytest.raises(TypeError, match="no parameter `z`"):
        model(x, z=x)
    with pytest.raises(TypeError, match="`x` is given both by position and by keyword"):
        model(x, x=x)


NESTED = """graph main {
    %d : {"a": f32[2], "b": (f32[2], int)} = placeholder d
    %a = call_function operator.getitem(%d, "a")
    %t = call_function operator.getitem(%d, "b")
    %b = call_function operator.getitem(%t, 0)
    %i = call_function operator.getitem(%t, 1)
    %s = call_function operator.add(%a, %b)
    %m = call_function operator.mul(%s, %i)
    output {"sum": %s, "rest": [%m, (%i, None, "text")]}
}"""


def test_arguments_and_results_nest() -> None:
    model = fxc.loads(NESTED)
    one = np.ones(2, np.float32)
    out = model({"a": one, "b": (2 * one, 3)})
    np.testing.assert_array_equal(out["sum"], [3, 3])
    np.testing.assert_array_equal(out["rest"][0], [9, 9])
    assert out["rest"][1] == (3, None, "text")


def test_numbers() -> None:
    text = """graph main {
        %x : f32[2] = placeholder x
        %k : int = placeholder k
        %f : float = placeholder f
        %a = call_function operator.mul(%x, %k)
        %b = call_function operator.add(%a, %f)
        output %b
    }"""
    model = fxc.loads(text)
    x = np.ones(2, np.float32)
    for k, f in [(3, 0.5), (np.int64(3), np.float64(0.5)), (np.int32(3), np.float32(0.5))]:
        np.testing.assert_array_equal(model(x, k, f), [3.5, 3.5])
    with pytest.raises(ValueError, match="64 bits"):
        model(x, 1 << 70, 0.5)


def test_sizes_change_from_call_to_call() -> None:
    model = fxc.loads(ADD)
    for n in [1, 5, 0, 3]:
        assert model(np.ones((n, 2), np.float32), np.ones(2, np.float32)).shape == (n, 2)
    fixed = fxc.loads(ADD, dims={"N": 3})
    assert fixed(np.ones((3, 2), np.float32), np.ones(2, np.float32)).shape == (3, 2)
    with pytest.raises(fxc.InputError):
        fixed(np.ones((4, 2), np.float32), np.ones(2, np.float32))


class Exporter:
    """An array of some library that has only DLPack."""

    def __init__(self, array: np.ndarray, versions: bool) -> None:
        self.array = array
        self.versions = versions

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **kwargs: object) -> object:
        if kwargs and not self.versions:
            raise TypeError("unexpected keyword argument")
        return self.array.__dlpack__(**kwargs)


@pytest.mark.parametrize("versions", [True, False])
def test_other_libraries_lend_memory_by_dlpack(versions: bool) -> None:
    x = BASE.transpose(2, 0, 1)
    y = identity("f32", "4, 2, 3")(Exporter(x, versions))
    np.testing.assert_array_equal(y, x.reshape(-1))


def test_a_device_that_is_not_the_cpu_is_refused() -> None:
    class OnGpu(Exporter):
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

    with pytest.raises(TypeError, match="CUDA.*CPU"):
        identity("f32", "2")(OnGpu(np.ones(2, np.float32), True))


def test_memory_of_results_outlives_the_model() -> None:
    y = fxc.loads(ADD)(np.ones((1000, 2), np.float32), np.ones(2, np.float32))
    np.testing.assert_array_equal(y, np.full((1000, 2), 2, np.float32))
    assert y.flags.writeable and y.flags.c_contiguous


def test_no_two_results_share_memory() -> None:
    text = """graph main {
        %x : f32[64] = placeholder x
        %a = call_function torch.exp(%x)
        %b = call_function torch.exp(%x)
        %v = call_function torch.reshape(%a, [8, 8])
        output (%a, {"b": %b}, %v, %a)
    }"""
    model = fxc.loads(text)
    x = np.zeros(64, np.float32)
    a, b, v, again = (lambda r: (r[0], r[1]["b"], r[2], r[3]))(model(x))
    a[:] = 5
    assert (b == 1).all() and (v == 1).all() and (again == 1).all()
    model(x)
    assert (a == 5).all()
