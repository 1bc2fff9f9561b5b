"""`open_bus`: the bus for an address."""

from __future__ import annotations

from collections.abc import Callable
from ssl import SSLContext
from typing import TYPE_CHECKING

from nexus.bus.memory import MemoryBus
from nexus.bus.message import now_ms
from nexus.bus.port import Redelivery
from nexus.errors import BadSetting, PackageMissing

if TYPE_CHECKING:
    from nexus.bus.port import Bus


async def open_bus(
    url: str = "",
    *,
    prefix: str = "nexus",
    redelivery: Redelivery | None = None,
    clock_ms: Callable[[], int] = now_ms,
    tls: SSLContext | None = None,
    connect_timeout_s: float = 5.0,
) -> Bus:
    """Open a bus. Close it with `await bus.close()`.

    Args:
        url: Empty or `memory:` for a bus in this process; `nats://host:4222` or `tls://host:4222` for a NATS server, with
            user and password if it needs them. Servers of a cluster are separated by commas.
        prefix: First word of all NATS subjects and streams. Buses with different prefixes do not see each other.
        redelivery: How often durable messages are delivered before they are set aside.
        clock_ms: Clock for deadlines.
        tls: Certificates for `tls://`; by default the system's.
        connect_timeout_s: How long to try to connect.

    Raises:
        BadSetting: The address has another form.
        PackageMissing: nats-py is not installed.
        BusUnavailable: No server answers, or it refuses the user.
    """
    scheme = url.partition(":")[0].lower()
    if url in ("", "memory:"):
        return MemoryBus(clock_ms=clock_ms, redelivery=redelivery)
    if scheme not in ("nats", "tls"):
        # The address may contain a password, also where its form is wrong.
        raise BadSetting(f"bus address with scheme {scheme[:20]!r} (use '', 'memory:', 'nats://…' or 'tls://…')")
    try:
        from nexus.bus.nats import NatsBus
    except ImportError as error:
        raise PackageMissing("nats-py", "a bus on NATS", "nats") from error

    return await NatsBus.connect(
        url,
        prefix=prefix,
        redelivery=redelivery,
        clock_ms=clock_ms,
        tls=tls,
        connect_timeout_s=connect_timeout_s,
    )
