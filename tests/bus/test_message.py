"""The envelope: its JSON, versions, limits; and what opening a bus costs and refuses."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import msgspec
import pytest

import nexus.bus
from nexus.bus import MemoryBus, Message, open_bus
from nexus.bus.message import decode, encode
from nexus.errors import BadBusMessage, BadSetting
from support.errors import has_code


def test_message_is_json_with_all_fields() -> None:
    payload = msgspec.json.decode(encode(Message("t", {"a": 1}, id="i", at_ms=5)))
    assert payload == {
        "topic": "t", "content": {"a": 1}, "type": "", "id": "i", "at_ms": 5, "tenant": "", "session": "",
        "correlation_id": "", "causation_id": "", "idempotency_key": "", "deadline_ms": 0, "trace_parent": "",
        "schema_version": "1.0",
    }  # fmt: skip


def test_fields_of_newer_minor_version_are_ignored() -> None:
    message = decode(b'{"topic": "t", "content": 1, "id": "i", "at_ms": 5, "schema_version": "1.7", "color": "red"}')
    assert (message.content, message.schema_version) == (1, "1.7")


def test_newer_major_version_is_refused_whatever_its_fields() -> None:
    with pytest.raises(
        BadBusMessage, match=r"envelope version 2\.0.*update Nexus", check=has_code("bus_message_too_new")
    ):
        decode(b'{"topic": ["t"], "schema_version": "2.0"}')


@pytest.mark.parametrize(
    "payload", [b"", b"[]", b"{}", b"\xff", b'{"topic": 1}', b'{"topic": "t", "schema_version": "x"}', b"[" * 10_000]
)
def test_payload_that_is_no_message_is_refused(payload: bytes) -> None:
    with pytest.raises(BadBusMessage, match="message unreadable"):
        decode(payload)


def test_large_message_error_has_sizes_and_advice() -> None:
    with pytest.raises(BadBusMessage, match="send a reference", check=has_code("bus_message_too_large")) as caught:
        encode(Message("t", "x" * 1_000), max_bytes=900)
    assert (caught.value.size_bytes > 1_000, caught.value.max_bytes) == (True, 900)


def test_follow_up_continues_conversation() -> None:
    first = Message("a", tenant="t", session="s", trace_parent="p")
    second = first.follow_up("b", 1)
    third = second.reply(2, type="done")
    assert (second.topic, third.topic, third.type) == ("b", "b", "done")
    assert {second.correlation_id, third.correlation_id} == {first.id}
    assert (second.causation_id, third.causation_id) == (first.id, second.id)
    assert (third.tenant, third.session, third.trace_parent) == ("t", "s", "p")


def test_ids_are_unique() -> None:
    assert len({Message("t").id for _ in range(100)}) == 100


def test_public_names_are_there_and_sorted() -> None:
    assert nexus.bus.__all__ == sorted(nexus.bus.__all__) == dir(nexus.bus)
    assert all(getattr(nexus.bus, name).__doc__ for name in nexus.bus.__all__ if name != "Function")
    with pytest.raises(AttributeError, match="no_such_name"):
        nexus.bus.no_such_name  # noqa: B018 - reading it is the test


def test_import_loads_neither_asyncio_nor_nats() -> None:
    code = "import sys, nexus.bus; print(*[name for name in ('asyncio', 'nats') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_open_bus_in_process() -> None:
    async def opened() -> None:
        for url in ("", "memory:"):
            bus = await open_bus(url)
            assert isinstance(bus, MemoryBus)
            await bus.close()

    asyncio.run(opened())


def test_open_bus_refuses_other_addresses_without_quoting_them() -> None:
    with pytest.raises(BadSetting, match="'amqp'") as caught:
        asyncio.run(open_bus("amqp://me:secret@host"))
    assert "secret" not in str(caught.value)


def test_missing_package_is_named_with_its_extra() -> None:
    code = (
        "import sys, asyncio; sys.modules['nats'] = None\n"
        "from nexus.bus import open_bus\n"
        "from nexus.errors import PackageMissing\n"
        "try:\n    asyncio.run(open_bus('nats://localhost'))\n"
        "except PackageMissing as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ".[nats]" in done.stdout
