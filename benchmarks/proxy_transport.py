"""First byte and memory of the proxy, beside no proxy and a bare one that only passes bytes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.report import Table, Target
from nexus.testing.model_server import ModelServer, model_server, reply

SIZES = (30_000, 1_000_000)
CALLS = 40
SMALL_CALLS = 500
"""Calls of short conversations, after which memory is measured."""

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

Server = tuple[str, int]
"""Address and process id; 0 for the scripted server itself."""


@contextmanager
def direct(provider: ModelServer) -> Iterator[Server]:
    """No proxy."""
    yield provider.anthropic_url, 0


@contextmanager
def bare(provider: ModelServer) -> Iterator[Server]:
    """A proxy of twenty lines that passes bytes on."""
    import socket

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with subprocess.Popen([sys.executable, "-c", BARE, provider.anthropic_url, str(port)]) as process:
        _wait_for(port)
        yield f"http://127.0.0.1:{port}", process.pid
        process.kill()


def _wait_for(port: int) -> None:
    import socket

    for _ in range(500):
        with socket.socket() as tried:
            if not tried.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.02)


@contextmanager
def nexus_proxy(provider: ModelServer, *options: str) -> Iterator[Server]:
    """`nexus proxy` with these options."""
    with tempfile.TemporaryDirectory() as home:
        command = [
            sys.executable,
            "-m",
            "nexus",
            "proxy",
            "--port",
            "0",
            "--json",
            "--upstream",
            provider.anthropic_url,
        ]
        environment = {**os.environ, "HOME": home}
        with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"], process.pid
            process.terminate()
            process.wait()


def _history(size: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for number in range(size // 9_000):
        messages.append({"role": "user", "content": f"question {number} " + "some words of the user " * 10})
        messages.append({"role": "assistant", "content": f"answer {number} " + "lorem ipsum dolor sit amet " * 320})
    return [*messages, {"role": "user", "content": "and now?"}]


def first_bytes(url: str, messages: list[dict[str, Any]], calls: int, conversation: str) -> list[float]:
    """Return the times to the first byte in ms of calls that each go on with the list."""
    import httpx

    times: list[float] = []
    headers = {"x-claude-code-session-id": conversation, "content-type": "application/json"}
    with httpx.Client(trust_env=False, timeout=300) as client:
        for number in range(calls):
            body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": True, "system": "x", "messages": messages}
            data = json.dumps(body).encode()
            begun = time.perf_counter()
            with client.stream("POST", f"{url}/v1/messages", content=data, headers=headers) as answer:
                pieces = answer.iter_raw()
                next(pieces)
                times.append(1_000 * (time.perf_counter() - begun))
                for _ in pieces:
                    pass
            messages += [{"role": "assistant", "content": "ok then"}, {"role": "user", "content": f"more {number}"}]
    return times


def _megabytes(process: int) -> int | None:
    if not process or not Path(f"/proc/{process}/statm").exists():
        return None
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)


def transport() -> tuple[Table, list[Target]]:
    """Measure all, one after the other."""
    ways: Sequence[tuple[str, Any]] = (
        ("no proxy", direct),
        ("bare proxy", bare),
        ("nexus proxy", nexus_proxy),
        ("nexus proxy --mode heal", lambda provider: nexus_proxy(provider, "--mode", "heal")),
        ("nexus proxy --budget 2000000", lambda provider: nexus_proxy(provider, "--budget", "2000000")),
        ("nexus proxy --budget 100000", lambda provider: nexus_proxy(provider, "--budget", "100000")),
    )
    rows: list[tuple[Any, ...]] = []
    medians: dict[str, float] = {}
    for name, way in ways:
        with model_server(reply("ok then", event_interval_s=0.002)) as provider, way(provider) as (url, process):
            idle = _megabytes(process)
            cells: list[str] = []
            for size in SIZES:
                times = first_bytes(url, _history(size), CALLS, f"size-{size}")[5:]  # the first one is unknown
                provider.requests.clear()
                cells.append(f"{median(times):.1f} / {quantiles(times, n=100)[98]:.1f}")
                medians[name] = median(times)
            for number in range(SMALL_CALLS // 50 if process else 0):
                first_bytes(url, _history(9_000), 50, f"small-{number}")
                provider.requests.clear()
            rows.append((name, *cells, idle, _megabytes(process)))
    columns = ("way", "30 kB, p50 / p99 ms", "1 MB, p50 / p99 ms", "MB at the start", "MB at the end")
    table = Table(
        "Proxy: first byte and memory",
        "python -m benchmarks proxy",
        f"streamed calls of one conversation, then {SMALL_CALLS:,} of short ones; scripted model on loopback",
        columns,
        tuple(rows),
        ("Each call continues the list of the last one. The scripted model's own time is in all rows.",),
    )
    base = medians["bare proxy"]
    targets = [
        Target(
            f"first byte at 1 MB over a bare proxy, {name}",
            f"≤ {most} ms",
            f"{medians[name] - base:.1f} ms",
            medians[name] - base <= most,
        )
        for name, most in (
            ("nexus proxy", 15),
            ("nexus proxy --budget 2000000", 60),
            ("nexus proxy --budget 100000", 60),
        )
    ]
    return table, targets
