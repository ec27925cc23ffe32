"""Runs README.md as a reader would: python tests/torch/readme.py [--fxc target/release/fxc] [--record]

The Python blocks run in order in one namespace, which holds `torch` and a small `model` with its `args`; then every command of the
`console` blocks runs in the folder that they wrote to. A block or a command that fails is shown. `--record` keeps what the
blocks wrote in tests/data/readme/, where `cargo test` runs the commands without PyTorch.

Needs: pip install torch numpy safetensors. Without torch it says so and checks nothing.
"""
import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import traceback
import zipfile

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KEPT = os.path.join(ROOT, "tests", "data", "readme")


def blocks(text):
    """The fenced blocks of a page: pairs of the info string and the body."""
    return re.findall(r"^```([^\n]*)\n(.*?)^```$", text, flags=re.M | re.S)


# Its file's name is in what is exported, so it is not a path of a machine.
NET = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(8, 16)
        self.head = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.head(torch.relu(self.hidden(x)))
"""


def namespace(torch):
    """What the Python blocks of the README start with."""
    names = {"torch": torch}
    exec(compile(NET, "model.py", "exec"), names)
    torch.manual_seed(0)
    return {**names, "model": names["Net"]().eval(), "args": (torch.randn(3, 6, 8),)}


def run_python(page, torch):
    """Runs the Python blocks and gives how many failed."""
    failed, names = 0, namespace(torch)
    for info, body in page:
        if info.split()[:1] != ["python"]:
            continue
        try:
            exec(compile(body, "README.md", "exec"), names)
        except Exception:
            failed += 1
            print(f"{body}{traceback.format_exc()}")
    return failed


def files(page, folder):
    """Writes the blocks that name a file."""
    for info, body in page:
        if len(info.split()) == 2:
            with open(os.path.join(folder, info.split()[1]), "w", encoding="utf-8") as f:
                f.write(body)


def commands(body):
    """The commands of a console block, each with whether the page shows an error for it."""
    for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
        line, shown = part.split("\n", 1)
        yield line, shown.startswith("error")


def run_commands(page, fxc):
    """Runs the commands of the console blocks and gives how many there were and how many failed."""
    seen = failed = 0
    programs = {"fxc": fxc, "python": sys.executable}
    for info, body in page:
        if info.split()[:1] != ["console"]:
            continue
        for line, is_error in commands(body):
            words = line.split()
            words[0] = shlex.quote(programs.get(words[0], words[0]))
            words = [shlex.quote(os.path.join(ROOT, w)) if w.startswith("tools/") else w for w in words]
            # Brackets are the values' own: no file has such a name.
            done = subprocess.run(["bash", "-c", " ".join(words)], capture_output=True, text=True)
            seen += 1
            if (done.returncode != 0) != is_error:
                failed += 1
                print(f"{line}\n{done.stdout}{done.stderr}")
    return seen, failed


def drop_paths(archive, torch):
    """Writes an archive anew in which the places of torch's own code are not those of this machine."""
    prefix = (os.path.dirname(os.path.dirname(torch.__file__)) + os.sep).encode()
    with zipfile.ZipFile(archive) as z:
        entries = [(name, z.read(name).replace(prefix, b"")) for name in z.namelist()]
    with zipfile.ZipFile(archive, "w") as z:
        for name, data in entries:
            z.writestr(zipfile.ZipInfo(name), data)


def record(page, folder, torch):
    """Keeps what the Python blocks wrote, and the blocks, by which `cargo test` sees that they are those of the page."""
    shutil.rmtree(KEPT, ignore_errors=True)
    shutil.copytree(folder, KEPT)
    for name in os.listdir(KEPT):
        if name.endswith(".pt2"):
            drop_paths(os.path.join(KEPT, name), torch)
    with open(os.path.join(KEPT, "blocks.txt"), "w", encoding="utf-8") as f:
        f.writelines(body for info, body in page if info.split()[:1] == ["python"])


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--fxc", default=os.path.join(ROOT, "target", "release", "fxc"))
    ap.add_argument("--record", action="store_true", help="keep what the Python blocks write in tests/data/readme")
    a = ap.parse_args()
    try:
        import torch
    except ImportError as e:
        print(f"SKIPPED: {e}; nothing was run")
        return 0
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        page = blocks(f.read())
    fxc = os.path.abspath(a.fxc)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        wrong = run_python(page, torch)
        if a.record:
            record(page, folder, torch)
        files(page, folder)
        seen, failed = run_commands(page, fxc)
        os.chdir(ROOT)
    python = sum(info.split()[:1] == ["python"] for info, _ in page)
    print(f"{python - wrong} of {python} Python blocks and {seen - failed} of {seen} commands of README.md ran")
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main())
