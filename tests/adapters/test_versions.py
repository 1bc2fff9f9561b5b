"""The adapters with the oldest and the newest versions of their frameworks, each in an environment of its own.

A version is installed into a folder of `.frameworks` that stands before the tests' own packages. The newest versions of
frameworks that the tests have themselves are run by their own tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".frameworks"


class Version(NamedTuple):
    """A framework's version, and the tests that it must pass."""

    package: str
    version: str
    tests: str
    others: tuple[str, ...] = ()
    """Packages that have to be older too."""


VERSIONS = (
    Version("langchain", "1.0.0", "test_langchain.py", ("langgraph==1.0.10",)),
    Version("agent-framework-core", "1.12.0", "test_agent_framework.py"),
    Version("pydantic-ai-slim[openai]", "2.0.0", "test_pydantic_ai.py"),
    Version("openai-agents", "0.18.0", "test_openai_agents.py", ("openai==2.44.0",)),
    Version("google-adk", "1.30.0", "isolated/google_adk.py"),
    Version("google-adk", "2.13.0", "isolated/google_adk.py"),
    Version("claude-agent-sdk", "0.2.82", "isolated/claude_agent.py"),
    Version("claude-agent-sdk", "0.2.189", "isolated/claude_agent.py"),
)


@pytest.mark.slow
@pytest.mark.parametrize("tried", VERSIONS, ids=lambda tried: f"{tried.package}-{tried.version}")
def test_adapter_works_with_this_version(tried: Version) -> None:
    packages = installed(tried)
    tests = Path(__file__).parent / tried.tests
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    environment = {name: value for name, value in environment.items() if not name.startswith(("PYTEST_", "COV_"))}
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", str(tests), "-q", "-m", ""),
            *("-o", "filterwarnings=", "-p", "no:unraisableexception"),  # the frameworks' own warnings
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-6_000:] + ran.stderr[-2_000:]


def installed(tried: Version) -> Path:
    """Return the folder with a version and what it requires, installed once."""
    folder = FOLDER / f"{tried.package.partition('[')[0]}-{tried.version}"
    if folder.is_dir():
        return folder
    making = folder.with_name(f"{folder.name}.{os.getpid()}")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    requirements = (f"{tried.package}=={tried.version}", *tried.others)
    ran = subprocess.run([*pip, "--target", str(making), *requirements], capture_output=True, text=True, check=False)
    if ran.returncode:
        shutil.rmtree(making, ignore_errors=True)
        pytest.fail(f"{' '.join(requirements)} cannot be installed: {ran.stderr[-1_000:]}")
    making.rename(folder)
    return folder
