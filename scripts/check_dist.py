"""Build the wheel and the sdist into dist/, check them, and install the wheel with each extra in an environment of its own.

In each environment a program runs that does what the extra is for. `make dist` calls this with the interpreters of
`DIST_PYTHONS` (3.11 and 3.13). Needs a package index; about 15 minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"

CALL = """
import asyncio, nexus
from nexus.models import open_client
from nexus.testing.model_server import model_server, reply

async def ask(url):
    client = open_client(format={format!r}, base_url=url, api_key="none")
    with nexus.open(ledger=":memory:", model={model!r}) as nx:
        done = await client.complete(nx.assemble("hello", session="s"))
    await client.aclose()
    assert done.result.messages[-1].text() == "Good morning.", done

with model_server(reply("Good morning.")) as server:
    asyncio.run(ask(server.{format}_url))
"""

LOCAL = """
from nexus.models.local import LocalServer, has_weights, install_weights

if not has_weights():
    install_weights()
with LocalServer() as server:
    assert server.is_running
"""

KEYRING = """
from nexus.workspace.credentials import system
import keyring
"""

MCP = """
import mcp
from nexus.agents.mcp_tools import open_mcp_tools
"""

NATS = """
import asyncio
from nexus.bus import open_bus
from nexus.errors import BusError

async def main():
    try:
        await open_bus("nats://127.0.0.1:1")
    except BusError as error:
        assert "127.0.0.1:1" in str(error), error

asyncio.run(main())
"""

OTEL = """
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from nexus.cli import _tracing
"""

POSTGRES = """
import nexus
from nexus.errors import LedgerError

try:
    nexus.open(ledger="postgresql://nobody@127.0.0.1:1/none").close()
except LedgerError as error:
    assert "127.0.0.1" in str(error), error
"""

SERVER = """
import os, re, subprocess, sys, tempfile, urllib.request

folder = tempfile.mkdtemp()
command = [sys.executable, "-m", "nexus", "serve", "-w", folder, "--port", "0", "--json"]
environment = {**os.environ, "NEXUS_HOME": folder}
with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
    try:
        url = re.search(r"http://[^\\"]+", server.stdout.readline()).group()
        assert urllib.request.urlopen(url.rstrip("/") + "/health").status == 200
    finally:
        server.terminate()
"""

ADAPTERS = {
    "agent-framework": "agent_framework",
    "claude-agent": "claude_agent",
    "google-adk": "google_adk",
    "langchain": "langchain",
    "openai-agents": "openai_agents",
    "pydantic-ai": "pydantic_ai",
}
"""Module of each adapter."""

PROXY = """
from nexus.proxy.serve import serve_proxy
"""

CALLS = {
    "anthropic": CALL.format(format="anthropic", model="claude-sonnet-4-5"),
    "gemini": CALL.format(format="gemini", model="gemini-2.5-pro"),
    "openai": CALL.format(format="openai", model="gpt-4o"),
}
PROGRAMS = {
    **CALLS,
    **{extra: f"import nexus.adapters.{module}" for extra, module in ADAPTERS.items()},
    "keyring": KEYRING,
    "local": LOCAL,
    "mcp": MCP,
    "nats": NATS,
    "otel": OTEL,
    "postgres": POSTGRES,
    "proxy": PROXY,
    "server": SERVER,
}
"""What each extra is for, as a program that raises if it does not work."""

APART = ("claude-agent", "google-adk")
"""Extras that `all` is without."""

BASE = (("init", "agent"), ("assemble", "hello", "-w", "agent", "--json"), ("sessions", "-w", "agent"))
"""Commands that work without an extra."""


def main(pythons: list[str]) -> int:
    """Return 0 if everything works. Prints a line for each environment."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    if {*PROGRAMS, "all"} != {*extras}:
        raise SystemExit(f"extras without a program: {', '.join({*extras} ^ {*PROGRAMS, 'all'})}")
    missing = [python for python in pythons if shutil.which(python) is None]
    if missing:
        raise SystemExit(f"{', '.join(missing)} not found (name interpreters: make dist DIST_PYTHONS='python3.12 …')")
    wheel = build()
    failed = [
        f"{python} [{extra}]"
        for python in pythons
        for extra in ("", *PROGRAMS, "all")
        if not works(python, wheel, extra)
    ]
    print(f"failed: {', '.join(failed)}" if failed else f"{wheel.name} and its sdist work")
    return 1 if failed else 0


def build() -> Path:
    """Build both files, let twine check them, and return the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", "-d", str(DIST), folder=ROOT)
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", folder, folder=ROOT)
        python = f"{folder}/bin/python"
        run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "twine", folder=ROOT)
        run(python, "-m", "twine", "check", "--strict", *map(str, DIST.iterdir()), folder=ROOT)
    (wheel,) = DIST.glob("*.whl")
    return wheel


def works(python: str, wheel: Path, extra: str) -> bool:
    """Install the wheel with an extra into an empty environment, and return True if its programs run."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        try:
            run(python, "-m", "venv", "env", folder=here)
            own = str(here / "env" / "bin" / "python")
            target = f"{wheel}[{extra}]" if extra else str(wheel)
            run(own, "-m", "pip", "install", "-q", "--disable-pip-version-check", target, folder=here)
            for words in BASE:
                run(str(here / "env" / "bin" / "nexus"), *words, folder=here)
            for tried in set(PROGRAMS) - {*APART} if extra == "all" else {extra} & set(PROGRAMS):
                run(own, "-W", "error::ImportWarning", "-c", PROGRAMS[tried], folder=here)
        except subprocess.CalledProcessError as error:
            print(f"{python} [{extra}] failed: {' '.join(error.cmd[:4])} …\n{error.stdout}{error.stderr}", flush=True)
            return False
    print(f"{python} [{extra}] works", flush=True)
    return True


def run(*command: str, folder: Path) -> None:
    """Run a command in a folder. Raises CalledProcessError."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NEXUS_", "PYTHON"))}
    environment["NEXUS_HOME"] = str(folder / "home")
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
