"""First byte and memory of the proxy, beside no proxy and a bare one that only passes bytes on."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

from benchmarks.proxies import Proxy, bare_proxy, megabytes, nexus_proxy, no_proxy
from benchmarks.report import Table, Target
from nexus.testing.model_server import model_server, reply

SIZES = (30_000, 1_000_000)
CALLS = 40
SMALL_CALLS = 500
"""Calls of short conversations, after which memory is measured."""


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


def transport() -> tuple[Table, list[Target]]:
    """Measure all, one after the other."""
    ways: Sequence[tuple[str, Proxy]] = (
        ("no proxy", no_proxy),
        ("bare proxy", bare_proxy),
        ("nexus proxy", nexus_proxy()),
        ("nexus proxy --mode heal", nexus_proxy("--mode", "heal")),
        ("nexus proxy --budget 2000000", nexus_proxy("--budget", "2000000")),
        ("nexus proxy --budget 100000", nexus_proxy("--budget", "100000")),
    )
    rows: list[tuple[Any, ...]] = []
    medians: dict[str, float] = {}
    for name, way in ways:
        with (
            model_server(reply("ok then", event_interval_s=0.002)) as provider,
            way(provider.anthropic_url) as (url, process),
        ):
            idle = megabytes(process)
            cells: list[str] = []
            for size in SIZES:
                times = first_bytes(url, _history(size), CALLS, f"size-{size}")[5:]  # the first one is unknown
                provider.requests.clear()
                cells.append(f"{median(times):.1f} / {quantiles(times, n=100)[98]:.1f}")
                medians[name] = median(times)
            for number in range(SMALL_CALLS // 50 if process else 0):
                first_bytes(url, _history(9_000), 50, f"small-{number}")
                provider.requests.clear()
            rows.append((name, *cells, idle, megabytes(process)))
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
