"""The results on disk: for each benchmark its last outcome, when it was measured, and on which machine."""

from __future__ import annotations

import time

import msgspec
from msgspec import Struct

from benchmarks.report import Outcome, machine
from benchmarks.sessions import ROOT

NAMES = (
    "prefix",
    "proxy",
    "proxy_faults",
    "forms",
    "next_call",
    "sending",
    "ledger",
    "scale",
    "postgres",
    "start",
    "serving",
    "agents",
    "services",
    "server",
    "system_slot",
    "counting",
    "counter_error",
    "peers",
    "conformance",
    "survival",
    "equal_prompt",
    "frames",
    "cached_tokens",
    "consolidation",
)
RESULTS = ROOT / ".bench" / "results.json"


class Result(Struct, frozen=True):
    """One benchmark's outcome, the day on which it was measured (UTC) and the machine."""

    day: str
    machine: dict[str, str]
    outcome: Outcome


def read() -> dict[str, Result]:
    """The results that there are, by benchmark."""
    return msgspec.json.decode(RESULTS.read_bytes(), type=dict[str, Result]) if RESULTS.is_file() else {}


def add(name: str, outcome: Outcome) -> None:
    """Puts an outcome into the file, in place of an earlier one."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    results = {**read(), name: Result(day, machine(), outcome)}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
