"""Installs the clients, with pinned versions, into `.clients` at the top of the repository: `make clients`.

They come from npm and PyPI with those programs' own settings. Each Python program has its own environment, because their
requirements conflict.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / ".clients"

NPM_PACKAGES = {
    "@anthropic-ai/claude-code": "2.1.332",
    "@openai/codex": "0.169.0",
    "opencode-ai": "1.18.33",
    "@google/gemini-cli": "0.61.0",
}
PYTHON_PACKAGES = {"aider-chat": ("aider", "0.86.2"), "llm": ("llm", "0.36")}
"""Folder of each package's environment, and its version."""

PROGRAMS = {
    **{name: FOLDER / "node_modules" / ".bin" / name for name in ("claude", "codex", "opencode", "gemini")},
    **{name: FOLDER / name / "bin" / name for name in ("aider", "llm")},
}

_STAMP = FOLDER / "installed.json"
_VERSIONS = {**NPM_PACKAGES, **{package: version for package, (_, version) in PYTHON_PACKAGES.items()}}


def is_installed() -> bool:
    """Return True if the folder has all clients, in these versions."""
    return (
        _STAMP.is_file()
        and json.loads(_STAMP.read_text()) == _VERSIONS
        and all(program.exists() for program in PROGRAMS.values())
    )


def install() -> None:
    """Install the clients that the folder lacks. Exits with a sentence if that is not possible."""
    if is_installed():
        return
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm not found: `make clients` runs clients from npm (install Node.js 20 or newer with npm)")
    print("Installing six clients into .clients, once: 2 GB", flush=True)
    FOLDER.mkdir(exist_ok=True)
    _STAMP.unlink(missing_ok=True)
    (FOLDER / "package.json").write_text(json.dumps({"private": True, "dependencies": NPM_PACKAGES}))
    _run(npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
    for package, (folder, version) in PYTHON_PACKAGES.items():
        _run(sys.executable, "-m", "venv", folder)
        pip = (str(FOLDER / folder / "bin" / "python"), "-m", "pip", "-q", "-q", "--disable-pip-version-check")
        _run(*pip, "install", f"{package}=={version}")
    if missing := [name for name, program in PROGRAMS.items() if not program.exists()]:
        sys.exit(f"clients missing after their installation: {', '.join(missing)} (delete .clients and try again)")
    _STAMP.write_text(json.dumps(_VERSIONS))


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=FOLDER, check=False)
    if done.returncode:
        sys.exit(f"clients not installed: `{' '.join(command[:4])} …` ended with status {done.returncode} (see above)")


if __name__ == "__main__":
    install()
