"""Hostile files and command lines: each must end in a result or a diagnostic, in time and memory in proportion to the file.

    cargo build --release
    python tests/attacks.py                     # all, with the limits of the table below
    python tests/attacks.py --only npy,zip      # those whose names contain one of the words
    python tests/attacks.py --plain             # without the limits of the command line: what the defaults hold back

Every attack runs in a process of its own with an address space of 16 GiB and a time-out. The table shows the time, the peak of
resident memory and the exit code; an attack fails if it crashes, needs more than 2 seconds or more than 512 MB, or says nothing.
The larger files are written sparsely or in seconds; they need 600 MB of disk in all, one at a time.
"""

import argparse
import itertools
import json
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SECONDS, MEGABYTES = 2.0, 512
ATTACKS = {}


def attack(*commands, limits=True):
    """Registers a function that writes the files of an attack to the current directory; `commands` are run there."""

    def register(write):
        ATTACKS[write.__name__] = (write, commands, limits)
        return write

    return register


def write(name, data):
    with open(name, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def graph(lines, inputs="%x : f32[2] = placeholder x"):
    return "graph main {\n" + inputs + "\n" + "\n".join(lines) + "\n}\n"


# Graphs that grow.

CHECKED = ("check m.fxir", "compile m.fxir", "run m.fxir x=ones", "run m.fxir x=ones --interpret", "opt m.fxir", "print m.fxir")


@attack(*CHECKED)
def doubled_values():
    """A graph that returns its argument twice, called 22 times in a row: 2^22 items."""
    calls = [f"%a{i + 1} = call_function d(%a{i})" for i in range(22)]
    text = graph(["%a0 = call_function torch.relu(%x)", *calls, "output %a22"])
    write("m.fxir", text + "graph d {\n%x = placeholder x\noutput (%x, %x)\n}\n")


@attack(*CHECKED)
def doubled_values_many_times():
    """As above, 12 doublings, but a thousand nodes have the result."""
    calls = [f"%a{i + 1} = call_function d(%a{i})" for i in range(12)]
    same = [f"%b{i} = call_function s(%{'a12' if i == 0 else f'b{i - 1}'})" for i in range(1000)]
    text = graph(["%a0 = call_function torch.relu(%x)", *calls, *same, "output %b999"])
    write("m.fxir", text + "graph d {\n%x = placeholder x\noutput (%x, %x)\n}\ngraph s {\n%x = placeholder x\noutput %x\n}\n")


@attack(*CHECKED[:2], "run m.fxir x=zeros --dim N=2", "run m.fxir x=zeros --dim N=2 --interpret")
def squared_sizes():
    """A symbolic size, squared 30 times."""
    squares = [f"%a{i + 1} = call_function operator.mul(%a{i}, %a{i})" for i in range(30)]
    lines = ["%a0 = call_method size(%x, 0)", *squares, "%y = call_function torch.full([2], %a30)", "output %y"]
    write("m.fxir", graph(lines, "%x : f32[N] = placeholder x"))


@attack(*CHECKED[:2], "run m.fxir x=zeros --dim N=2 --dim M=3")
def nested_sizes():
    """Floor divisions and remainders of sizes by each other: the expression doubles with every line."""
    lines = ["%a0 = call_method size(%x, 0)", "%b0 = call_method size(%x, 1)"]
    for i in range(40):
        lines += [f"%c{i} = call_function operator.floordiv(%a{i}, %b{i})", f"%a{i + 1} = call_function operator.add(%c{i}, %a{i})"]
        lines += [f"%b{i + 1} = call_function operator.mod(%a{i + 1}, %b{i})"]
    write("m.fxir", graph([*lines, "%y = call_function torch.full([2], %a40)", "output %y"], "%x : f32[N, M] = placeholder x"))


@attack(*CHECKED)
def inlined_nodes():
    """Graphs that call the one before twice: 2^21 nodes once they are inlined."""
    graphs = [graph(["%y = call_function g20(%x)", "output %y"]), "graph g0 {\n%x = placeholder x\n%y = call_function torch.exp(%x)\noutput %y\n}\n"]
    for i in range(1, 21):
        body = f"%a = call_function g{i - 1}(%x)\n%b = call_function g{i - 1}(%a)\noutput %b"
        graphs.append(f"graph g{i} {{\n%x = placeholder x\n{body}\n}}\n")
    write("m.fxir", "".join(graphs))


@attack(*CHECKED)
def nested_loops():
    """Loops whose bodies run a loop twice, 20 deep: 2^20 copies of a graph, and as many turns."""
    def loop(name, body):
        zero = f"%{name}z = call_function torch.zeros([], dtype=i64)"
        run = f"%{name} = call_function torch.while_loop(@less, @{body}, (%{name}z, %x))"
        return f"{zero}\n{run}\n%{name}x = call_function operator.getitem(%{name}, 1)"
    graphs = [graph([loop("a", "b20"), "output %ax"]), "graph less {\n%i = placeholder i\n%x = placeholder x\n%y = call_function operator.lt(%i, 2)\noutput %y\n}\n"]
    graphs.append("graph b0 {\n%i = placeholder i\n%x = placeholder x\n%j = call_function operator.add(%i, 1)\noutput (%j, %x)\n}\n")
    for i in range(1, 21):
        inner = loop("a", f"b{i - 1}") + "\n" + loop("c", f"b{i - 1}")
        graphs.append(f"graph b{i} {{\n%i = placeholder i\n%x = placeholder x\n%j = call_function operator.add(%i, 1)\n{inner}\noutput (%j, %x)\n}}\n")
    write("m.fxir", "".join(graphs))


@attack(*CHECKED)
def named_copies():
    """A graph of 2,000 nodes that 4,000 branches name: each use is copied."""
    body = "\n".join(f"%a{i + 1} = call_function torch.exp(%a{i})" for i in range(2000))
    uses = [f"%b{i} = call_function torch.cond(%p, @g, @g, (%x,))" for i in range(2000)]
    text = graph(["%s = call_function torch.sum(%x)", "%p = call_function operator.gt(%s, 0)", *uses, "output %b1999"])
    write("m.fxir", text + "graph g {\n%a0 = placeholder a0\n" + body + "\noutput %a2000\n}\n")


@attack("run m.fxir x=ones", "run m.fxir x=ones --interpret")
def endless_loop():
    text = graph(["%z = call_function torch.zeros([])", "%w = call_function torch.while_loop(@t, @b, (%z,))", "output %w"])
    text += "graph t {\n%i = placeholder i\n%y = call_function operator.lt(%i, 2)\noutput %y\n}\n"
    write("m.fxir", text + "graph b {\n%i = placeholder i\n%y = call_function operator.mul(%i, 1)\noutput (%y,)\n}\n")


@attack("rewrite m.fxir")
def growing_rules():
    """A rule that writes 200 calls where it finds one, and a rule that writes what the other reads."""
    def rule(name, reads, writes):
        pattern = f"%n = call_function {reads}(%x)\noutput %n"
        return f"rewrite {name}(%x) {{\n{pattern}\n}} => {{\n{writes}\n}}\n"
    many = "\n".join(f"%e{i} = call_function exp(%{'x' if i == 0 else f'e{i - 1}'})" for i in range(200))
    rules = rule("grow", "neg", f"{many}\noutput %e199")
    rules += rule("again", "exp", "%m = call_function neg(%x)\n%o = call_function neg(%m)\noutput %o")
    write("m.fxir", graph(["%y = call_function torch.neg(%x)", "output %y"]) + rules)


@attack("check m.fxir", "fmt m.fxir", "compile m.fxir", "print m.fxir", "run m.fxir x=ones")
def deep_arguments():
    """Lists in lists, 200 deep, and 200,000 brackets that are never closed."""
    write("m.fxir", graph(["%y = call_function torch.cat(" + "[" * 200 + "%x" + "]" * 200 + ")", "output %y"]) + "[" * 200_000)


@attack("check m.fxir", "fmt m.fxir", "print m.fxir", limits=False)
def long_line():
    """180 MB of calls in one line."""
    with open("m.fxir", "w") as f:
        f.write("graph main { %a0 : f32[2] = placeholder x ")
        for i in itertools.count():
            f.write(f"%a{i + 1} = call_function torch.relu(%a{i}) ")
            if i % 1000 == 0 and f.tell() > 180_000_000:
                break
        f.write(f"output %a{i + 1} }}\n")


@attack("check m.fxir", "fmt m.fxir", "check m.fxir --message-format json", "check m.fxir --message-format sarif", limits=False)
def nulls():
    """100 MB of NULs in a graph: one error, which must not print them."""
    write("m.fxir", b"graph main { " + bytes(100_000_000) + b"}")


@attack("check m.fxir", "check m.fxir --message-format json")
def many_errors():
    """200,000 errors on one line."""
    write("m.fxir", "graph main { " + "%x = call_function torch.nope(%y) " * 200_000 + "}")


# Archives.

ARCHIVE = os.path.join(ROOT, "tests/data/buffers.pt2")
READ = ("check m.pt2", "info m.pt2", "print m.pt2 -o out.fxir", "compile m.pt2")


def archive(change=lambda name, data: data, method=zipfile.ZIP_STORED, more=()):
    """Writes m.pt2, the archive of the tests with entries changed and added."""
    with zipfile.ZipFile(ARCHIVE) as source, zipfile.ZipFile("m.pt2", "w", method) as out:
        for name in source.namelist():
            data = change(name, source.read(name))
            if data is not None:
                out.writestr(name, data)
        for name, data in more:
            out.writestr(name, data)


def change_weights(edit):
    def change(name, data):
        if not name.endswith("weights_config.json"):
            return data
        table = json.loads(data)
        edit(table["config"])
        return json.dumps(table).encode()
    return change


@attack(*READ)
def strided_weights():
    """Weights of 2^30 elements in four bytes, by strides of zero."""
    def edit(table):
        for w in table.values():
            w["tensor_meta"]["sizes"], w["tensor_meta"]["strides"] = [{"as_int": 1 << 30}], [{"as_int": 0}]
    archive(change_weights(edit))


@attack(*READ)
def many_strided_weights():
    """Ten thousand weights of 4 MB each, by strides of zero: 40 GB in all."""
    def edit(table):
        w = json.dumps(table["a.bias"])
        for i, key in enumerate(table):
            table[key] = json.loads(w)
            table[key]["tensor_meta"]["sizes"] = [{"as_int": (1 << 27) + i}]
            table[key]["tensor_meta"]["strides"] = [{"as_int": 0}]
    archive(change_weights(edit))


@attack(*READ)
def deflated_json():
    """200 MB of JSON in 200 kB: a list of empty lists."""
    text = b'{"graph_module": {"graph": {"nodes": [], "tensor_values": {}, "z": [' + b"[]," * 66_000_000 + b"[]]}}}"
    archive(lambda name, data: text if name.endswith("model.json") else data, zipfile.ZIP_DEFLATED)


@attack(*READ)
def deflated_nodes():
    """100 MB of nodes in 100 kB."""
    text = b'{"graph_module": {"graph": {"nodes": [' + b"{}," * 33_000_000 + b'{}], "tensor_values": {}}}}'
    archive(lambda name, data: text if name.endswith("model.json") else data, zipfile.ZIP_DEFLATED)


@attack(*READ)
def deflated_blob():
    """A weight of 2 GB in 2 MB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = b"".join([packer.compress(bytes(1 << 24)) for _ in range(128)] + [packer.flush()])
    archive(lambda name, data: None if name.endswith("weights/weight_1") else data)
    add_raw("m.pt2", "buffers/data/weights/weight_1", body, 1 << 31)


def add_raw(path, name, body, size):
    """Adds a deflated entry whose content is not computed."""
    with zipfile.ZipFile(path) as z:
        end, count = z.start_dir, len(z.infolist())
    with open(path, "rb") as f:
        data = f.read()
    directory = data[end:-22]
    local = b"PK\x03\x04" + struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0, 0, len(body), size, len(name), 0) + name.encode() + body
    central = b"PK\x01\x02" + struct.pack("<HHHHHHIIIHHHHHII", 20, 20, 0, 8, 0, 0, 0, len(body), size, len(name), 0, 0, 0, 0, 0, end)
    directory += central + name.encode()
    tail = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, count + 1, count + 1, len(directory), end + len(local), 0)
    write(path, data[:end] + local + directory + tail)


@attack(*READ)
def many_entries():
    """60,000 entries, and as many weights."""
    archive(more=[(f"buffers/data/weights/w{i}", b"1234") for i in range(60_000)])


@attack(*READ)
def packed_weights():
    """4,000 deflated weights: each must not read the whole directory again."""
    names = [f"w{i}" for i in range(4_000)]
    def edit(table):
        for name in names:
            table[name] = dict(table["count"], path_name=name)
    def change(name, data):
        if name.endswith("models/model.json"):
            return more_parameters(data, names)
        return change_weights(edit)(name, data)
    archive(change, zipfile.ZIP_DEFLATED, [(f"buffers/data/weights/{n}", bytes(4)) for n in names])


def more_parameters(data, names):
    model = json.loads(data)
    module = model["graph_module"]
    count = next(i for i in module["signature"]["input_specs"] if "buffer" in i and i["buffer"]["buffer_name"] == "count")
    key = count["buffer"]["arg"]["name"]
    for n in names:
        spec = json.loads(json.dumps(count))
        spec["buffer"]["arg"]["name"], spec["buffer"]["buffer_name"] = f"b_{n}", n
        module["signature"]["input_specs"].insert(0, spec)
        module["graph"]["inputs"].insert(0, {"as_tensor": {"name": f"b_{n}"}})
        module["graph"]["tensor_values"][f"b_{n}"] = module["graph"]["tensor_values"][key]
    return json.dumps(model).encode()


def raw_zip(path, entries, copies, data=b""):
    """A zip archive whose directory names the same bytes `copies` times."""
    local, central = b"", b""
    name, body = entries
    local = b"PK\x03\x04" + struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 0, zlib.crc32(body), len(body), len(body), len(name(0)), 0) + name(0) + body
    for i in range(copies):
        fields = struct.pack("<HHHHHHIIIHHHHHII", 20, 20, 0, 0, 0, 0, zlib.crc32(body), len(body), len(body), len(name(i)), 0, 0, 0, 0, 0, 0)
        central += b"PK\x01\x02" + fields + name(i)
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, min(copies, 65535), min(copies, 65535), len(central), len(local), 0)
    write(path, local + data + central + end)


def npy(shape, data=b"", dtype="<f4"):
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text.encode() + data


ONE_INPUT = ("run m.fxir --inputs in.npz", "run m.fxir x=in.npz:a0", "info in.npz")


def one_input():
    write("m.fxir", graph(["%y = call_function torch.relu(%x)", "output %y"], "%x : f32[N] = placeholder x"))


@attack(*ONE_INPUT)
def overlapping_npz():
    """20,000 entries of an archive that share their bytes."""
    one_input()
    raw_zip("in.npz", (lambda i: f"a{i:05}.npy".encode(), npy("(250000,)", bytes(1_000_000))), 20_000)


@attack(*ONE_INPUT)
def deflated_npz():
    """64 arrays of 256 MB in 16 MB."""
    one_input()
    with zipfile.ZipFile("in.npz", "w", zipfile.ZIP_DEFLATED) as z:
        body = npy(f"({1 << 24},)", bytes(1 << 26))
        for i in range(8):
            z.writestr(f"a{i}.npy", body)


@attack("run m.fxir x=in.npy", "info in.npy")
def npy_rank():
    """An array of rank 400,000."""
    one_input()
    write("in.npy", npy("(" + "1," * 400_000 + ")", bytes(4)))


@attack("info in.safetensors", "run m.fxir --inputs in.safetensors", limits=False)
def safetensors_header():
    """A header of 98 MB."""
    one_input()
    items = b",".join(b'"%07d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(1_600_000))
    header = b"{" + items + b"}"
    write("in.safetensors", struct.pack("<Q", len(header)) + header)


@attack("info in.safetensors", "run m.fxir --inputs in.safetensors", limits=False)
def safetensors_lists():
    """A header of 98 MB of empty lists."""
    one_input()
    header = b'{"__metadata__":{"a":[' + b"[]," * 32_000_000 + b"[]]}}"
    write("in.safetensors", struct.pack("<Q", len(header)) + header)


# Operators whose results do not depend on the size of the file.

RUN = ("run m.fxir x=ones", "run m.fxir x=ones --interpret", "compile m.fxir", "check m.fxir")
BIG = (1 << 63) - 1
LARGE = 1 << 33
CALLS = {
    "repeat_interleave": [f"torch.repeat_interleave(%x, {LARGE})"],
    "repeat_interleave_tensor": [f"torch.full([2], {LARGE})", "torch.repeat_interleave(%a0)"],
    "pad": [f"torch.nn.functional.pad(%x, [1, {BIG}])"],
    "pad_large": [f"torch.nn.functional.pad(%x, [1, {LARGE}])"],
    "arange": [f"torch.arange({LARGE})"],
    "arange_max": [f"torch.arange({BIG})"],
    "full": [f"torch.full([{LARGE}], 1.0)"],
    "full_max": [f"torch.full([{BIG}, {BIG}], 1.0)"],
    "full_folded": [f"torch.full([{1 << 28}], 1.0)", "torch.cumsum(%a0, 0)"],
    "expand_sum": [f"torch.unsqueeze(%x, 1)", f"torch.ops.aten.expand(%a0, [2, {1 << 40}])", "torch.sum(%a1)"],
    "expand_cumsum": [f"torch.unsqueeze(%x, 1)", f"torch.ops.aten.expand(%a0, [2, {LARGE}])", "torch.cumsum(%a1, 1)"],
    "expand_sort": [f"torch.unsqueeze(%x, 1)", f"torch.ops.aten.expand(%a0, [2, {LARGE}])", "torch.ops.aten.sort(%a1)"],
    "one_hot": ["torch.arange(2)", f"torch.nn.functional.one_hot(%a0, {LARGE})"],
    "one_hot_value": [f"torch.full([1], {LARGE})", "torch.nn.functional.one_hot(%a0)"],
    "unfold": [f"torch.ops.aten.expand(%x, [{1 << 20}, 2])", f"torch.ops.aten.unfold(%a0, 0, {1 << 19}, 1)", "torch.exp(%a1)"],
    "as_strided": [f"torch.as_strided(%x, [{1 << 20}, {1 << 20}], [0, 0])", "torch.exp(%a0)"],
    "as_strided_sum": [f"torch.as_strided(%x, [{1 << 20}, {1 << 20}], [0, 0])", "torch.sum(%a0)"],
    "cartesian_prod": [f"torch.arange({1 << 17})", "torch.cartesian_prod(%a0, %a0)"],
    "combinations": [f"torch.arange({1 << 17})", "torch.combinations(%a0, 3)"],
    "meshgrid": [f"torch.arange({1 << 17})", "torch.meshgrid(%a0, %a0)"],
    "tril_indices": [f"torch.tril_indices({1 << 20}, {1 << 20})"],
    "eye": [f"torch.eye({1 << 20})"],
    "outer": [f"torch.arange({1 << 18})", "torch.outer(%a0, %a0)"],
    "kron": [f"torch.arange({1 << 18})", "torch.kron(%a0, %a0)"],
    "repeat": [f"torch.ops.aten.repeat(%x, [{1 << 20}, {1 << 20}])"],
    "tile": [f"torch.tile(%x, [{LARGE}])"],
    "cdist": [f"torch.ones([{1 << 18}, 1])", "torch.cdist(%a0, %a0)"],
    "bincount": [f"torch.full([1], {LARGE})", "torch.bincount(%a0)"],
    "linspace": [f"torch.linspace(0, 1, {LARGE})"],
    "randn": [f"torch.randn([{LARGE}])"],
    "vander": [f"torch.vander(%x, {LARGE})"],
    "interpolate": ["torch.ones([1, 1, 2])", f"torch.nn.functional.interpolate(%a0, {LARGE})"],
    "matmul": [f"torch.ones([{1 << 18}, 1])", "torch.t(%a0)", "torch.matmul(%a0, %a1)"],
    "split": [f"torch.ops.aten.expand(torch.ones([1]), [{1 << 30}])"],
}


def define_calls():
    for name, calls in CALLS.items():
        def write_calls(calls=calls):
            lines = [f"%a{i} = call_function {c}" for i, c in enumerate(calls)]
            write("m.fxir", graph([*lines, f"output %a{len(calls) - 1}"]))
        write_calls.__name__ = "call_" + name
        attack(*RUN)(write_calls)


define_calls()


@attack("run m.fxir x=ones --dim N=3 --threads 100000", "bench m.fxir x=ones --dim N=3 --seconds 0.01 --threads 100000")
def threads():
    one_input()


@attack("run m.fxir x=ones --dim N=3", "check m.fxir", "explain E0101")
def little_memory():
    """`ulimit -v 25000` and more: the program says that it has too little memory."""
    one_input()


# The harness.


def run_process(fxc, args, address_space, timeout):
    """Runs fxc. Returns seconds, megabytes, the exit code (negative: a signal; None: the time-out) and its texts."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        env = dict(os.environ, FXC_CACHE="off")
        child = subprocess.Popen([fxc, *args], stdout=out, stderr=err, stdin=subprocess.DEVNULL, preexec_fn=limit, env=env)
        code, usage = None, None
        while code is None and time.monotonic() - start < timeout:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if pid else None
            time.sleep(0 if pid else 0.005)
        seconds = time.monotonic() - start
        if code is None:
            child.kill()
            _, _, usage = os.wait4(child.pid, 0)
        child.returncode = code
        texts = []
        for f in (out, err):
            size = f.seek(0, 2)
            f.seek(0)
            texts.append((f.read(1 << 16).decode(errors="replace"), size))
    return seconds, usage.ru_maxrss / 1024, code, texts


def judge(seconds, megabytes, code, texts):
    (_, out_size), (err, err_size) = texts
    if code is None:
        return "HANGS"
    if code < 0 or code > 2 or "panicked" in err:
        return "CRASH"
    if code and not err.strip():
        return "SILENT"
    if err_size > 1 << 20:
        return "LOUD"
    return "SLOW" if seconds > SECONDS else "LARGE" if megabytes > MEGABYTES else "ok"


def run_attack(name, options):
    writer, commands, limits = ATTACKS[name]
    worst = 0
    with tempfile.TemporaryDirectory(prefix="fxc-attack-") as folder:
        os.chdir(folder)
        writer()
        for command in commands:
            spaces = [25_000 << 10, 40_000 << 10, 100_000 << 10] if name == "little_memory" else [options.space << 30]
            for space in spaces:
                flags = [] if options.plain else ["--max-memory", f"{MEGABYTES}MB", "--max-time", "1.5"]
                result = run_process(options.fxc, command.split() + flags, space, options.timeout)
                verdict = judge(*result)
                worst += verdict != "ok"
                said = re.search(r"(error|warning|panicked)[^\n]*", result[3][1][0])
                said = said[0][:100] if said else result[3][1][0].strip()[:100].replace("\n", " ")
                print(f"{verdict:6} {result[0]:7.2f} s {result[1]:7.0f} MB  {result[2]!s:4} {name}: {command}  | {said}", flush=True)
        os.chdir("/")
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fxc", default=os.path.join(ROOT, "target/release/fxc"))
    parser.add_argument("--only", default="", help="words that names contain, separated by commas")
    parser.add_argument("--plain", action="store_true", help="pass no limits")
    parser.add_argument("--timeout", type=float, default=20)
    parser.add_argument("--space", type=int, default=16, help="GiB of address space")
    options = parser.parse_args()
    options.fxc = os.path.abspath(options.fxc)
    words = options.only.split(",")
    failed = sum(run_attack(name, options) for name in ATTACKS if any(w in name for w in words))
    print(f"{failed} failures" if failed else "all attacks end in a result or a diagnostic")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
