"""Proxies that run on this machine: each writes its address to a file while it runs."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from nexus.types.decoding import decodable

FOLDER = "proxies"

TOKEN_HEADER = "x-nexus-token"  # noqa: S105 - a name


class RunningProxy(Struct, frozen=True):
    """One proxy that runs."""

    url: str
    pid: int
    ledger: str
    token: str = ""
    """The owner's: with it the status is read and the mode set."""
    client: str = ""
    """The client that it was started for; empty for one that serves all."""


@contextmanager
def announced(folder: Path, proxy: RunningProxy) -> Generator[None]:
    """Keep a proxy's file in the user's folder for the block. A folder that cannot be written only hides it."""
    file = folder / FOLDER / f"{proxy.pid}-{proxy.url.rpartition(':')[2]}.json"
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(msgspec.to_builtins(proxy), stream)
    try:
        yield
    finally:
        with suppress(OSError):
            file.unlink()


def running_proxies(folder: Path) -> list[RunningProxy]:
    """Return the proxies whose processes are alive; files of others, which were killed, are deleted."""
    proxies: list[RunningProxy] = []
    for file in sorted((folder / FOLDER).glob("*.json")):
        try:
            proxy = msgspec.json.decode(file.read_bytes(), type=decodable(RunningProxy))
        except (OSError, msgspec.DecodeError):
            continue
        if _is_alive(proxy.pid):
            proxies.append(proxy)
        else:
            with suppress(OSError):
                file.unlink()
    return proxies


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
