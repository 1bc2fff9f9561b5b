"""The peers' own environment in `.bench/peers`: made when it is first asked for, and again when its packages change."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.report import NotRun
from benchmarks.sessions import ROOT

FOLDER = ROOT / ".bench" / "peers"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def ready() -> Path:
    """The environment's Python. Raises NotRun, with what pip said last, when it cannot be made (no network, say)."""
    python = FOLDER / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    stamp, wanted = FOLDER / "installed", _wanted()
    if python.exists() and stamp.exists() and stamp.read_text("utf-8") == wanted:
        return python
    print(f"(installing the peers into {FOLDER.relative_to(ROOT)}, once)\n", flush=True)
    shutil.rmtree(FOLDER, ignore_errors=True)
    run([sys.executable, "-m", "venv", str(FOLDER)])
    run([str(python), *PIP, "--require-hashes", "-r", str(REQUIREMENTS)])
    run([str(python), *PIP, "--no-deps", "--no-build-isolation", "-e", str(ROOT)])
    stamp.write_text(wanted, "utf-8")
    return python


def versions(python: Path) -> dict[str, str]:
    """The version of every package in the environment."""
    code = "import importlib.metadata as m; [print(d.name, d.version) for d in m.distributions()]"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def _wanted() -> str:
    """What the environment was made of: this Python, this folder, these packages."""
    made_of = f"{sys.version}\n{ROOT}\n".encode() + REQUIREMENTS.read_bytes()
    return hashlib.sha256(made_of).hexdigest()


def run(command: list[str]) -> None:
    """Runs a step of the installation. Raises NotRun with the last line that it wrote when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise NotRun(f"the peers cannot be installed: {said[-1].strip() if said else f'exit code {done.returncode}'}")
