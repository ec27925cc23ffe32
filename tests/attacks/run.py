"""Hostile files and command lines: each must end in a result or a diagnostic, in time and memory in proportion to the file.

    cargo build --release
    python tests/attacks/run.py                     # all, with the limits of the table below
    python tests/attacks/run.py --only npy,zip      # those whose names contain one of the words
    python tests/attacks/run.py --plain             # without the limits of the command line: what the defaults hold back

Every attack runs in a process of its own with an address space of 16 GiB and a time-out. The table shows the time, the peak of
resident memory and the exit code; an attack fails if it crashes, needs more than 2 seconds or more than 512 MB, or says nothing.
The larger files are written sparsely or in seconds; they need 600 MB of disk in all, one at a time.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

import archives  # noqa: F401
import arrays  # noqa: F401
import calls  # noqa: F401
import graphs  # noqa: F401
from common import ATTACKS, ROOT

SECONDS, MEGABYTES = 2.0, 512


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
            # With less than the program's own size, the system ends it before it starts.
            least = os.path.getsize(options.fxc)
            spaces = [least, least + (8 << 20), 100_000 << 10] if name == "little_memory" else [options.space << 30]
            for space in spaces:
                flags = [] if options.plain else ["--max-memory", f"{MEGABYTES}MB", "--max-time", "1.5"]
                result = run_process(options.fxc, command.split() + flags, space, options.timeout)
                verdict = judge(*result)
                worst += verdict != "ok"
                said = re.search(r"(error|warning|panicked)[^\n]*", result[3][1][0])
                said = said[0][:100] if said else result[3][1][0].strip()[:100].replace("\n", " ")
                measured = f"{verdict:6} {result[0]:7.2f} s {result[1]:7.0f} MB  {result[2]!s:4}"
                print(f"{measured} {name}: {command}  | {said}", flush=True)
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
