"""Runs the named tortures, or all, and prints what they counted. Exit code 1 when something was lost."""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

import msgspec
from msgspec.structs import replace

from torture import broken
from torture.figures import Figures, Progress, Report, machine, shown

NAMES = (
    "faults",
    "kill_appends",
    "kill_compactions",
    "kill_turns",
    "kill_broker",
    "kill_server",
    "kill_proxy",
    "kill_postgres",
    "postgres_writers",
    "services",
    "power_loss",
    "io_errors",
    "disk_full",
    "bit_flips",
    "pages",
    "contention",
    "mixed_load",
    "identity",
    "backup_load",
    "fitting",
    "lists",
    "frames",
    "overflow",
    "broken_builds",
    "year",
)


def main(arguments: list[str]) -> int:
    """0 when every promise held, 1 when one did not, 2 for wrong arguments."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are: {', '.join(NAMES)}")
    if asked.broken:
        broken.apply(asked.broken)
    done: list[Figures] = []
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="torture-", dir=asked.folder) as folder:
        about = machine(Path(folder))
        gc.freeze()
        for name in asked.names or NAMES:
            try:
                done.append(_one(name, asked.rounds, asked.seed, Path(folder) / name))
            except AssertionError as error:
                failed[name] = "\n".join((str(error), *getattr(error, "__notes__", ())))
    report = Report(about, asked.seed, asked.broken, tuple(done), failed)
    text = msgspec.json.format(msgspec.json.encode(report), indent=1).decode() if asked.json else shown(report)
    print(text)
    return 1 if failed else 0


def _one(name: str, rounds: int | None, seed: int, folder: Path) -> Figures:
    module = import_module(f"torture.{name}")
    folder.mkdir()
    begun = time.monotonic()
    try:
        found: Figures = module.run(rounds or module.ROUNDS, seed, folder, _progress(name, begun))
    finally:
        if sys.stderr.isatty():
            print(file=sys.stderr)
    return replace(found, seconds=round(time.monotonic() - begun, 1))


def _progress(name: str, begun: float) -> Progress:
    if not sys.stderr.isatty():
        return lambda _done, _all: None

    def told(done: int, whole: int) -> None:
        seconds = time.monotonic() - begun
        print(f"\r{name}  {done:,} of {whole:,}  {seconds:,.0f} s ", end="", file=sys.stderr, flush=True)

    return told


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m torture", description=sys.modules["torture"].__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to run (all): {', '.join(NAMES)}")
    parser.add_argument("--rounds", "--turns", type=int, help="rounds of each, turns of the year (the full figures)")
    parser.add_argument("--seed", type=int, default=1, help="where the random choices begin (1)")
    parser.add_argument("--folder", help="where to put the ledgers (the system's folder for temporary files)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--broken", choices=sorted(broken.BUILDS), default="", help="break this first; it must be found"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
