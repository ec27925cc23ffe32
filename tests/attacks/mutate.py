"""Damaged files of every class, each in a process of its own: a result or a diagnostic, in time and memory in proportion.

    cargo build --release
    python tests/attacks/mutate.py                      # 2,000 mutants
    python tests/attacks/mutate.py --count 20000 --first 0
    python tests/attacks/mutate.py --one 1234           # writes that mutant, and shows what fxc says

A seed chooses a file of the repository (FXIR, text that torch prints, Python, TorchScript, .pt2, .safetensors, .npy, .npz,
rules, .fxc), one to four mutators and a command. Mutators flip, cut and copy bytes, put in extreme numbers, and let things grow: lines,
brackets and blocks are repeated, nested, squared (a block is repeated in each copy of itself) and doubled. A mutant fails if
fxc crashes, hangs, says nothing, or needs more than 2 seconds or 512 MB; it is then kept, and its seed is printed.
"""

import argparse
import collections
import concurrent.futures
import io
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import warnings
import zipfile
import zlib

from common import ROOT
from run import judge, run_process

DATA = os.path.join(ROOT, "tests", "data")
# Archives with several parts of one name are wanted.
warnings.filterwarnings("ignore", "Duplicate name")
NUMBERS = [b"0", b"1", b"-1", b"65", b"4096", b"2147483648", b"4611686018427387904", b"9223372036854775807", b"18446744073709551616",
           b"1e400", b"nan"]
PIECES = [b"(", b")", b"[", b"]", b"{", b"}", b",", b"%", b"%x", b"@", b'"', b"'", b"-", b"None", b"f32[", b"N", b"output", b"\0",
          "é".encode(), b"\\", b"//0", b":", b"\n", b" = ", b"**", b"<<", b"graph main {", b"call_function ", b"torch.cond("]
# The largest file that growth makes.
LARGEST = 1 << 20


# ------------------------------------------------------------------------------------------------ files
def read(path):
    with open(path, "rb") as f:
        return f.read()


def texts(folder, *endings):
    """The files below a folder of the repository with one of the endings, in order, without large ones."""
    out = []
    for place, _, names in os.walk(os.path.join(ROOT, folder)):
        out += [os.path.join(place, n) for n in names if n.endswith(endings)]
    return [p for p in sorted(out) if 0 < os.path.getsize(p) < 100_000]


def numpy_files():
    import struct

    def npy(shape, descr="<f4"):
        header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
        header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
        count = 1
        for n in shape:
            count *= n
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(4 * count)

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("x.npy", npy((2, 3)))
        z.writestr("y.npy", npy((5,), "<i4"))
    return [("npy", npy((2, 3))), ("npz", packed.getvalue())]


def compiled_file(fxc):
    """A small compiled model."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "m.fxc")
        text = "graph main {\n%x : f32[4, 3] = placeholder x\n%y = call_function torch.softmax(%x, 1)\noutput %y\n}\n"
        model = os.path.join(folder, "m.fxir")
        with open(model, "w") as f:
            f.write(text)
        subprocess.run([fxc, "compile", model, "-o", out], check=True, capture_output=True)
        return read(out)


RULES = b"""rewrite a: add(%x, 0) => %x
exact rewrite b: neg(neg(%x)) => %x
rewrite c: mul(%x, %k) where k == 1 => %x
rewrite d: add(%x, %y) => add(%y, %x) where is_scalar(y)
"""


def corpus(fxc):
    """The files by class: name and content."""
    out = collections.defaultdict(list)
    for p in texts("examples", ".fxir") + texts("tests/ui", ".fxir") + texts("src/op", "examples.txt"):
        content = read(p)
        if p.endswith("examples.txt"):
            for part in content.split(b"# ")[1:]:
                out["fxir"].append(b"graph main {\n" + part.split(b"\n", 1)[1] + b"}\n")
        else:
            out["fxir"].append(content)
    out["torch"] = [read(p) for p in texts("tests/data", ".txt", ".program") if not p.endswith(("module_sizes.txt", "used_ops.txt"))]
    out["python"] = [read(p) for p in texts("tests/data", ".code")]
    out["torchscript"] = [read(p) for p in texts("tests/attacks", ".graph")]
    out["pt2"] = [read(p) for p in texts("tests/data", ".pt2")]
    out["safetensors"] = [read(p) for p in texts("tests/data", ".safetensors")]
    for kind, content in numpy_files():
        out[kind].append(content)
    out["rules"] = [RULES] + [read(p) for p in texts("src/pass/rules", ".fxir")]
    out["fxc"] = [compiled_file(fxc)]
    return {k: v for k, v in out.items() if v}


# ------------------------------------------------------------------------------------------------ mutators
def span(data, r, most=64):
    a = r.randrange(len(data))
    return a, min(len(data), a + 1 + r.randrange(most))


def flip(data, r):
    a = r.randrange(len(data))
    return data[:a] + bytes([data[a] ^ 1 << r.randrange(8)]) + data[a + 1:]


def cut(data, r):
    a, b = span(data, r, r.choice([4, 64, 4096]))
    return data[:a] + data[b:]


def shorten(data, r):
    return data[:r.randrange(len(data)) + 1]


def copy(data, r):
    a, b = span(data, r, 256)
    at = r.randrange(len(data))
    return data[:at] + data[a:b] + data[at:]


def insert(data, r):
    at = r.randrange(len(data))
    return data[:at] + r.choice(PIECES) + data[at:]


def number(data, r):
    """A number in a text replaced by an extreme one."""
    found = list(re.finditer(rb"\d+", data))
    if not found:
        return insert(data, r)
    m = r.choice(found)
    return data[:m.start()] + r.choice(NUMBERS) + data[m.end():]


def word(data, r):
    """Eight bytes replaced by an extreme number, as headers have them; most are at the start or at the end."""
    a = r.choice([r.randrange(min(len(data), 64)), r.randrange(len(data)), max(0, len(data) - 1 - r.randrange(64))])
    new = r.choice([0, 1, 1 << 31, 1 << 32, 1 << 62, (1 << 63) - 1, (1 << 64) - 1]).to_bytes(8, "little")
    return data[:a] + new[:max(0, len(data) - a)] + data[a + 8:]


def block(data, r):
    """Some lines, or a span between brackets."""
    lines = data.split(b"\n")
    if len(lines) > 2 and r.random() < 0.6:
        i = r.randrange(len(lines))
        j = min(len(lines), i + 1 + r.randrange(4))
        start = sum(len(x) + 1 for x in lines[:i])
        return start, min(len(data), start + sum(len(x) + 1 for x in lines[i:j]))
    pairs = [(m.start(), m.end()) for m in re.finditer(rb"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}", data)]
    return r.choice(pairs) if pairs else span(data, r)


def limited(times, size):
    return max(1, min(times, LARGEST // max(1, size)))


def repeat(data, r):
    a, b = block(data, r)
    return data[:b] + data[a:b] * limited(r.choice([2, 10, 1000, 30000]), b - a) + data[b:]


def nest(data, r):
    """A block in many brackets."""
    a, b = block(data, r)
    opening, closing = r.choice([(b"(", b")"), (b"[", b"]"), (b"{", b"}"), (b"-(", b")"), (b"(", b",)"), (b"add(", b", 1)")])
    n = limited(r.choice([2, 70, 300, 5000, 100000]), 4)
    return data[:a] + opening * n + data[a:b] + closing * n + data[b:]


def square(data, r):
    """A block repeated, with the block in each copy."""
    a, b = block(data, r)
    once = data[a:b]
    n = limited(r.choice([3, 30, 300]), 1)
    half = len(once) // 2
    inner = once[:half] + once * limited(n, n * len(once)) + once[half:]
    return data[:b] + inner * limited(n, len(inner)) + data[b:]


def double(data, r):
    """Values that double: each line uses the one before it twice."""
    names = re.findall(rb"%([A-Za-z_]\w*)", data) or [b"x"]
    output = data.rfind(b"output")
    at = output if output >= 0 else len(data)
    last, lines = b"%" + r.choice(names), []
    form = r.choice([b"torch.cat([%s, %s])", b"torch.add(%s, %s)", b"builtins.list((%s, %s))", b"operator.mul(%s, %s)",
                     b"torch.stack([%s, %s])", b"operator.pow(%s, %s)"])
    for i in range(r.choice([5, 25, 70])):
        lines.append(b"    %%d%d = call_function %s\n" % (i, form % (last, last)))
        last = b"%%d%d" % i
    rest = data[at:]
    if r.random() < 0.5:
        rest = re.sub(rb"output .*", b"output " + last, rest, count=1)
    return data[:at] + b"".join(lines) + rest


SMALL = [flip, cut, shorten, copy, insert, number, word]
GROWTH = [repeat, nest, square, double]


def tree(value, r):
    """A JSON tree with one of its values replaced, repeated or nested."""
    places = []

    def visit(v, set_it):
        places.append((v, set_it))
        if isinstance(v, dict):
            for k in v:
                visit(v[k], lambda new, v=v, k=k: v.__setitem__(k, new))
        elif isinstance(v, list):
            for i in range(len(v)):
                visit(v[i], lambda new, v=v, i=i: v.__setitem__(i, new))

    visit(value, lambda new: None)
    old, set_it = r.choice(places)
    other = r.choice(places)[0]
    new = r.choice([None, True, -1, 0, (1 << 63) - 1, 1 << 62, 1e308, "", "x", [], {}, other, "repeat", "nest"])
    if new == "repeat":
        new = (old if isinstance(old, list) and old else [old]) * r.choice([2, 100, 3000])
    elif new == "nest":
        for _ in range(r.choice([2, 60, 400])):
            old = [old]
        new = old
    try:
        set_it(new)
        return json.dumps(value)
    except (RecursionError, ValueError):
        return json.dumps(other if not isinstance(other, (list, dict)) else 0)


def archive(data, r):
    """A zip archive with a part changed, doubled, renamed, or its bytes damaged."""
    if r.random() < 0.3:
        return r.choice([flip, cut, shorten, word, copy])(data, r)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        parts = [(i.filename, z.read(i)) for i in z.infolist()]
    chosen = r.randrange(len(parts))
    json_parts = [i for i, (n, _) in enumerate(parts) if n.endswith(".json")]
    if json_parts and r.random() < 0.7:
        chosen = r.choice(json_parts)
    name, content = parts[chosen]
    if name.endswith(".json") and r.random() < 0.8:
        content = tree(json.loads(content), r).encode()
    elif content:
        content = r.choice(SMALL + [repeat])(content, r)
    if r.random() < 0.1:
        name = r.choice(["../" + name, "/" + name, name * 50, ""]) or "x"
    parts[chosen] = (name, content)
    parts += [parts[r.randrange(len(parts))]] * r.choice([0, 0, 0, 1, 200])
    method = r.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(out, "w", method) as z:
        for n, c in parts:
            z.writestr(n, c)
    return out.getvalue()


# ------------------------------------------------------------------------------------------------ running
COMMANDS = {
    "fxir": ["check m.fxir", "fmt m.fxir", "print m.fxir", "opt m.fxir", "run m.fxir", "compile m.fxir", "run --interpret m.fxir"],
    "torch": ["check m.txt", "print m.txt", "opt m.txt"],
    "python": ["check m.txt", "print m.txt", "compile m.txt"],
    "torchscript": ["check m.txt", "print m.txt"],
    "pt2": ["check m.pt2", "print m.pt2", "info m.pt2", "opt m.pt2", "run m.pt2"],
    "safetensors": ["info m.safetensors", "run one.fxir --inputs m.safetensors", "check weights.fxir --weights m.safetensors"],
    "npy": ["run one.fxir x=m.npy", "run one.fxir --inputs m.npy"],
    "npz": ["run one.fxir --inputs m.npz", "info m.npz"],
    "rules": ["rewrite one.fxir --rules m.fxir", "check m.fxir"],
    "fxc": ["info m.fxc", "run m.fxc", "print m.fxc", "run --no-fallback m.fxc"],
}
BINARY = ("pt2", "safetensors", "npy", "npz", "fxc")
ONE = "graph main {\n%x : f32[2, 3] = placeholder x\n%y = call_function torch.relu(%x)\noutput %y\n}\n"
WEIGHTS = "graph main {\n%x : f32[2] = placeholder x\n%w = get_attr w\n%y = call_function torch.add(%x, %w)\noutput %y\n}\n"


def mutant(files, seed):
    """The class, the content and the command of a seed."""
    r = random.Random(seed)
    kind = r.choice(list(files))
    data = r.choice(files[kind])
    for _ in range(r.choice([1, 1, 2, 3, 4])):
        if kind in ("pt2", "npz"):
            try:
                data = archive(data, r)
            except (zipfile.BadZipFile, KeyError, ValueError, NotImplementedError, EOFError, UnicodeError, OSError,
                    RecursionError, struct.error, zlib.error):
                data = flip(data, r)
        elif kind in BINARY:
            data = r.choice([*SMALL, repeat])(data, r)
        else:
            data = r.choice(SMALL + GROWTH)(data, r)
        data = data[:2 * LARGEST] or b"("
    return kind, data, r.choice(COMMANDS[kind])


def attempt(files, seed, options):
    """Runs a mutant. Returns its class, the verdict and what it took."""
    kind, data, command = mutant(files, seed)
    with tempfile.TemporaryDirectory(prefix="fxc-mutant-") as folder:
        ending = {"rules": "fxir", "torch": "txt", "python": "txt", "torchscript": "txt"}.get(kind, kind)
        for name, content in [(f"m.{ending}", data), ("one.fxir", ONE.encode()), ("weights.fxir", WEIGHTS.encode())]:
            with open(os.path.join(folder, name), "wb") as f:
                f.write(content)
        if options.one is not None:
            for name in os.listdir(folder):
                with open(name, "wb") as f:
                    f.write(read(os.path.join(folder, name)))
        args = [os.path.join(folder, w) if re.fullmatch(r"(m|one|weights)\.\w+", w) else w for w in command.split()]
        args = [w.replace("x=m.npy", "x=" + os.path.join(folder, "m.npy")) for w in args]
        limits = [] if options.plain else ["--max-memory", "512MB", "--max-time", "1.5"]
        result = run_process(options.fxc, args + limits, options.space << 30, options.timeout)
    return kind, command, judge(*result), result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fxc", default=os.path.join(ROOT, "target/release/fxc"))
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--one", type=int, help="the seed of the only mutant, which is written to this directory")
    parser.add_argument("--kinds", default="", help="classes of files, separated by commas")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--plain", action="store_true", help="pass no limits")
    parser.add_argument("--timeout", type=float, default=20)
    parser.add_argument("--space", type=int, default=16, help="GiB of address space")
    options = parser.parse_args()
    options.fxc = os.path.abspath(options.fxc)
    files = corpus(options.fxc)
    if options.kinds:
        files = {k: files[k] for k in options.kinds.split(",")}
    if options.one is not None:
        kind, command, verdict, result = attempt(files, options.one, options)
        print(f"{kind}: fxc {command}: {verdict}, {result[0]:.2f} s, {result[1]:.0f} MB, exit code {result[2]}\n{result[3][1][0]}")
        return verdict != "ok"
    counts, failed, slowest, largest = collections.Counter(), 0, (0.0, 0), (0.0, 0)
    codes = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        seeds = range(options.first, options.first + options.count)
        for seed, (kind, command, verdict, result) in zip(seeds, pool.map(lambda s: attempt(files, s, options), seeds)):
            counts[kind] += 1
            codes[result[2]] += 1
            slowest, largest = max(slowest, (result[0], seed)), max(largest, (result[1], seed))
            if verdict != "ok":
                failed += 1
                said = result[3][1][0].strip().split("\n")[0][:160]
                print(f"FAILED {seed}: {verdict} {kind}: fxc {command}: {result[0]:.2f} s, {result[1]:.0f} MB | {said}", flush=True)
    print(f"{options.count} mutants from seed {options.first}: {failed} failed; by class {dict(counts)}; by exit code {dict(codes)}")
    print(f"slowest {slowest[0]:.2f} s (seed {slowest[1]}), largest {largest[0]:.0f} MB (seed {largest[1]})")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
