"""Types that msgspec decodes into, in programs with several threads."""

from __future__ import annotations

from threading import RLock
from typing import TypeVar

import msgspec

T = TypeVar("T")

_gathering_fields = RLock()


def decodable(kind: T) -> T:
    """Return a type that several threads may decode into.

    msgspec gathers the fields of a class when something is first decoded into it. While one thread does so, another one
    sees half of them, and the process ends with a segmentation fault (msgspec 0.22). Each type goes through here first.
    """
    with _gathering_fields:
        msgspec.json.Decoder(kind)
    return kind
