"""Checks what a release consists of: tools/release.sh calls it.

python tools/check_release.py versions [--unreleased]    versions and licences agree; prints the version
python tools/check_release.py crate FILE.crate LOG       what the package holds, and what cargo said
python tools/check_release.py wheel FILE.whl             what the wheel holds
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LICENSES = ["LICENSE-APACHE", "LICENSE-MIT"]
# crates.io takes packages up to this size.
LARGEST_CRATE = 10 << 20
# Folders and files of the package; the files that cargo adds come last.
CRATE_FILES = re.compile(
    r"(src|grammar|examples)/.+|docs/embedding\.md|build\.rs|(ARCHITECTURE|CHANGELOG|README)\.md|LICENSE-(MIT|APACHE)"
    r"|Cargo\.(toml|lock|toml\.orig)|\.cargo_vcs_info\.json"
)
WHEEL_FILES = re.compile(
    r"fxc/(\w+\.py|_fxc\.pyi|py\.typed|_fxc(\.abi3)?\.(so|pyd))"
    r"|fxc-[\w.]+\.dist-info/(METADATA|RECORD|WHEEL|entry_points\.txt|licenses/LICENSE-(MIT|APACHE)|sboms/.+\.json)"
)


def fail(message: str) -> None:
    sys.exit(f"error: {message}")


def require(holds: bool, message: str) -> None:
    if not holds:
        fail(message)


def check_versions(unreleased: bool) -> str:
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
    packages = json.loads(subprocess.check_output(command, cwd=ROOT))["packages"]
    for field in ["version", "license", "rust_version"]:
        values = {p["name"]: p[field] for p in packages}
        require(len(set(values.values())) == 1, f"packages differ in {field}: {values}")
    version, license = packages[0]["version"], packages[0]["license"]
    pyproject = (ROOT / "python/pyproject.toml").read_text()
    require('dynamic = ["version"]' in pyproject, "python/pyproject.toml must take its version from Cargo.toml")
    require(f'license = "{license}"' in pyproject, f"python/pyproject.toml must have the license {license!r}")
    for name in LICENSES:
        require(name in pyproject, f"python/pyproject.toml does not list {name}")
        require((ROOT / name).is_file(), f"{name} is missing")
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    require(bool(headings) and headings[0].split()[0] == version, f"CHANGELOG.md must begin with {version}")
    require(unreleased or "unreleased" not in headings[0], f"CHANGELOG.md must have the date of {version}, not `{headings[0]}`")
    return str(version)


def check_crate(path: Path, log: str) -> None:
    # Tests and benchmarks are left out on purpose: their data is larger than the crate.
    warnings = [line for line in log.splitlines() if line.startswith("warning")]
    left_out = re.compile(r"warning: ignoring (test|benchmark) `\w+` as `(tests|benches)/")
    others = [w for w in warnings if not left_out.match(w)]
    require(not others, "cargo package warns:\n" + "\n".join(others))
    size = path.stat().st_size
    require(size < LARGEST_CRATE, f"{path.name} has {size} bytes")
    with tarfile.open(path) as crate:
        names = {m.name.partition("/")[2] for m in crate.getmembers() if m.isfile()}
    stray = sorted(n for n in names if not CRATE_FILES.fullmatch(n))
    require(not stray, f"{path.name} has files that nobody needs: {stray}")
    missing = {*LICENSES, "README.md", "Cargo.lock", "build.rs", "grammar/fxir.lalrpop"} - names
    require(not missing, f"{path.name} lacks {sorted(missing)}")
    print(f"{path.name}: {len(names)} files, {size / 1e6:.1f} MB")


def check_wheel(path: Path) -> None:
    with zipfile.ZipFile(path) as wheel:
        names = {n for n in wheel.namelist() if not n.endswith("/")}
        info = next(n.partition("/")[0] for n in names if n.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    stray = sorted(n for n in names if not WHEEL_FILES.fullmatch(n))
    require(not stray, f"{path.name} has files that nobody needs: {stray}")
    sources = {f"fxc/{p.name}" for p in (ROOT / "python/fxc").glob("*.py*") if p.suffix in [".py", ".pyi"]}
    licenses = {f"{info}/licenses/{name}" for name in LICENSES}
    missing = {"fxc/py.typed", "fxc/_fxc.pyi", f"{info}/entry_points.txt", *sources, *licenses} - names
    require(not missing, f"{path.name} lacks {sorted(missing)}")
    require(any(n.startswith("fxc/_fxc") and n.endswith((".so", ".pyd")) for n in names), f"{path.name} has no library")
    require(metadata["License-Expression"] == "MIT OR Apache-2.0", f"{path.name} has the license {metadata['License-Expression']}")
    require(sorted(metadata.get_all("License-File", [])) == LICENSES, f"{path.name} does not name its license files")
    print(f"{path.name}: {len(names)} files, {path.stat().st_size / 1e6:.1f} MB")


def main(args: list[str]) -> None:
    match args:
        case ["versions", *options]:
            print(check_versions("--unreleased" in options))
        case ["crate", path, log]:
            check_crate(Path(path), Path(log).read_text())
        case ["wheel", path]:
            check_wheel(Path(path))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
