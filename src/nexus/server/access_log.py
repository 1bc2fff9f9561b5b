"""The line of the access log for each request: who asked for what, its outcome and duration, and no content."""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from nexus.server.logs import ACCESS
from nexus.text.redact import redact

_MAX_CALLS = 100
_MAX_CHARS = 200


@dataclass(slots=True)
class AccessRecord:
    """One request as it is served."""

    transport: str
    """`http` or `stdio`."""
    peer: str = ""
    """Address of the client, or of the proxy in front of the server."""
    method: str = ""
    """HTTP method."""
    route: str = ""
    """Path of the route; `unknown` for any other, whose text may be anything."""
    status: int = 0
    """HTTP status; 0 without a response."""
    tenant: str = ""
    agent: str = ""
    received_bytes: int = 0
    sent_bytes: int = 0
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    started_s: float = field(default_factory=time.perf_counter)

    def add_call(self, method: str, agent: str, error: str, seconds: float) -> None:
        """Add a call of a method; `error` is the class of its error, or empty."""
        if len(self.calls) < _MAX_CALLS:
            call = {"method": method, "agent": _safe(agent), "error": error, "seconds": round(seconds, 4)}
            self.calls.append({name: value for name, value in call.items() if value not in ("", None)})

    def write(self) -> None:
        """Write the line."""
        seconds = round(time.perf_counter() - self.started_s, 4)
        values = {
            "transport": self.transport,
            "peer": self.peer,
            "method": self.method,
            "route": self.route,
            "status": self.status,
            "tenant": self.tenant,
            "agent": _safe(self.agent),
            "received_bytes": self.received_bytes,
            "sent_bytes": self.sent_bytes,
            "calls": self.calls,
        }
        fields = {name: value for name, value in values.items() if value or name == "status"}
        ACCESS.info("request", extra={"fields": {**fields, "seconds": seconds}})


CURRENT: ContextVar[AccessRecord | None] = ContextVar("nexus_access", default=None)
"""The request that the running task serves."""


def _safe(name: str) -> str:
    """Return the id of an agent for the log."""
    return redact(name[:_MAX_CHARS]).text
