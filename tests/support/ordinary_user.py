"""Files that the tests' user must not read, also when that is the superuser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def as_nobody(root: Path) -> Iterator[None]:
    """As a user without special rights, who can reach `root`."""
    if os.geteuid() != 0:
        yield
        return
    closed = [place for place in (root, *root.parents) if not place.stat().st_mode & 0o001]
    for place in closed:
        place.chmod(place.stat().st_mode | 0o055)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        for place in closed:
            place.chmod(place.stat().st_mode & ~0o055)
