"""Proxies as processes on loopback: Nexus', a bare one, and those of others, each in an environment of its own.

The others are no part of Nexus. They are installed, pinned, into `.bench/proxies/NAME` when they are first measured.
Headroom needs 900 MB and minutes: it is measured only where `NEXUS_BENCH_HEADROOM` is set.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

from benchmarks.peers.environment import PIP, run
from benchmarks.report import NotRun
from benchmarks.sessions import ROOT

FOLDER = ROOT / ".bench" / "proxies"
LIGHTFOOT = "lightfoot==1.0.0"
HEADROOM = "headroom-ai[proxy]==0.42.0"
HEADROOM_ASKED = "NEXUS_BENCH_HEADROOM"
START_S = 90
"""Seconds that a proxy may take until it listens; Headroom asks for a list of prices first."""

BARE = """
import sys
import httpx, uvicorn
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route
client = httpx.AsyncClient(base_url=sys.argv[1], timeout=None)
async def relay(request):
    names = ("host", "content-length", "accept-encoding")
    headers = [(n, v) for n, v in request.headers.items() if n not in names]
    asked = client.build_request(request.method, request.url.path, content=await request.body(), headers=headers)
    answer = await client.send(asked, stream=True)
    kind = {"content-type": answer.headers.get("content-type", "")}
    return StreamingResponse(answer.aiter_raw(), answer.status_code, kind)
app = Starlette(routes=[Route("/{path:path}", relay, methods=["POST"])])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
"""

Server: TypeAlias = tuple[str, int]
"""Address and process id; 0 for no process."""
Proxy: TypeAlias = Callable[[str], AbstractContextManager[Server]]
"""Runs a proxy before the server at this address."""


@contextmanager
def no_proxy(upstream: str) -> Iterator[Server]:
    """The upstream server itself."""
    yield upstream, 0


@contextmanager
def bare_proxy(upstream: str) -> Iterator[Server]:
    """A proxy of twenty lines that passes bytes on."""
    port = _free_port()
    with _running([sys.executable, "-c", BARE, upstream, str(port)], port) as server:
        yield server


def nexus_proxy(*options: str, folder: Path | None = None) -> Proxy:
    """`nexus proxy` with these options; its home folder is a new one unless it is named."""

    @contextmanager
    def proxy(upstream: str) -> Iterator[Server]:
        port = _free_port()
        command = [sys.executable, "-m", "nexus", "proxy", "--port", str(port), "--upstream", upstream, *options]
        with _home(folder) as home, _running(command, port, {"HOME": str(home)}) as server:
            yield server

    return proxy


def lightfoot(trigger_tokens: int = 0, keep_tokens: int = 0) -> Proxy:
    """Lightfoot in its mode `live`: with its defaults, or pruning from so many tokens on to so many. Raises NotRun."""
    python = _environment("lightfoot", LIGHTFOOT)

    @contextmanager
    def proxy(upstream: str) -> Iterator[Server]:
        port = _free_port()
        with _home(None) as home:
            lines = ['mode = "live"', f"port = {port}"]
            lines += [f'{name} = "{upstream}"' for name in ("upstream", "openai_upstream", "gemini_upstream")]
            if trigger_tokens:
                limits = (f"trigger_tokens = {trigger_tokens}", f"cold_trigger_tokens = {trigger_tokens}")
                lines += ["[prune]", *limits, f"keep_tokens = {keep_tokens}", "min_drop_tokens = 2000"]
            (home / "config.toml").write_text("\n".join(lines), "utf-8")
            command = [str(python), "-m", "lightfoot", "serve", "--port", str(port)]
            with _running(command, port, {"HOME": str(home), "LIGHTFOOT_HOME": str(home)}) as server:
                yield server

    return proxy


def headroom() -> Proxy:
    """Headroom with its defaults but its limit of requests a minute. Raises NotRun unless it is asked for."""
    if not os.environ.get(HEADROOM_ASKED):
        raise NotRun(f"Headroom needs 900 MB (set {HEADROOM_ASKED}=1 to measure it)")
    python = _environment("headroom", HEADROOM)

    @contextmanager
    def proxy(upstream: str) -> Iterator[Server]:
        port = _free_port()
        command = [str(python.with_name("headroom")), "proxy", "--no-rate-limit", "--port", str(port)]
        targets = dict.fromkeys(("ANTHROPIC_TARGET_API_URL", "OPENAI_TARGET_API_URL"), upstream)
        with _home(None) as home, _running(command, port, {"HOME": str(home), **targets}) as server:
            yield server

    return proxy


def _environment(name: str, package: str) -> Path:
    """Return the Python of a proxy's own environment. Raises NotRun if it cannot be made."""
    folder = FOLDER / name
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    stamp = folder / "installed"
    if stamp.exists() and stamp.read_text("utf-8") == package:
        return python
    print(f"(installing {package} into {folder.relative_to(ROOT)}, once)\n", flush=True)
    run([sys.executable, "-m", "venv", "--clear", str(folder)])
    run([str(python), *PIP, package])
    stamp.write_text(package, "utf-8")
    return python


@contextmanager
def _home(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        yield Path(made)


@contextmanager
def _running(command: Sequence[str], port: int, variables: dict[str, str] | None = None) -> Iterator[Server]:
    """Run a command until the block ends, from when it listens. Raises NotRun if it does not."""
    environment = {**os.environ, "NO_PROXY": "127.0.0.1,localhost", **(variables or {})}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            if not _is_listening(port, process):
                raise NotRun(f"{Path(command[0]).name} {command[2]} does not start")
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _is_listening(port: int, process: subprocess.Popen[bytes]) -> bool:
    for _ in range(50 * START_S):
        with socket.socket() as tried:
            if not tried.connect_ex(("127.0.0.1", port)):
                return True
        if process.poll() is not None:
            return False
        time.sleep(0.02)
    return False


def _free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


def megabytes(process: int) -> int | None:
    """Return the resident memory of a process; None where the system does not say."""
    if not process or not Path(f"/proc/{process}/statm").exists():
        return None
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)
