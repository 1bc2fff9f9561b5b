"""Both buses keep every promise of the port; and the checks notice a bus that breaks one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from bus.conftest import MemoryPlace, NatsPlace
from nexus.bus import DeadLetter, MemoryBus, Message
from nexus.bus.groups import SubscriberGroup
from nexus.bus.memory import _MemoryDelivery
from nexus.errors import BusDeadlineExceeded
from nexus.testing.bus_conformance import CHECKS, BusCheck, run
from support.nats_server import NatsServer


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_memory_bus_keeps_promise(check: BusCheck) -> None:
    check(MemoryPlace())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_nats_bus_keeps_promise(check: BusCheck, nats_server: NatsServer) -> None:
    check(NatsPlace(nats_server))


def test_run_reports_passed_checks() -> None:
    report = run(MemoryPlace)
    assert report.ok, report
    assert str(report) == f"{len(CHECKS)} of {len(CHECKS)} checks passed"


def test_checks_have_different_sentences() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS) >= 40


class LosesFields(MemoryBus):
    async def publish(self, message: Message, *, durable: bool = False) -> None:
        await super().publish(replace(message, trace_parent=""), durable=durable)


class IgnoresGroups(MemoryBus):
    async def subscribe(self, topic: str, function: Any, *, group: str = "", **settings: Any) -> Any:
        return await super().subscribe(topic, function, group="" if not settings.get("durable") else group, **settings)


class IgnoresSessions(MemoryBus):
    async def publish(self, message: Message, *, durable: bool = False) -> None:
        await super().publish(replace(message, session=""), durable=durable)


class OneAtATime(MemoryBus):
    async def subscribe(self, topic: str, function: Any, *, concurrency: int = 1, **settings: Any) -> Any:
        return await super().subscribe(topic, function, concurrency=min(1, concurrency), **settings)


class IgnoresConcurrency(MemoryBus):
    async def subscribe(self, topic: str, function: Any, *, concurrency: int = 1, **settings: Any) -> Any:
        return await super().subscribe(topic, function, concurrency=concurrency and 99, **settings)


class MixesTenants(MemoryBus):
    async def publish(self, message: Message, *, durable: bool = False) -> None:
        await super().publish(replace(message, tenant=""), durable=durable)


class SwallowsErrors(MemoryBus):
    async def subscribe(self, topic: str, function: Any, **settings: Any) -> Any:
        async def quiet(message: Message) -> Any:
            try:
                return await function(message)
            except Exception:  # noqa: BLE001 - the error under test
                return message.reply()

        return await super().subscribe(topic, quiet, **settings)


class NeverRefuses(MemoryBus):
    """Waits for a reply although no function can answer."""

    async def request(self, message: Message, *, timeout_s: float | None = None) -> Message:
        async def never(_: Message) -> None:
            await asyncio.Event().wait()

        await super().subscribe(message.topic, never)
        return await super().request(message, timeout_s=timeout_s)


class IgnoresDeadlines(MemoryBus):
    async def publish(self, message: Message, *, durable: bool = False) -> None:
        if 0 < message.deadline_ms <= self.clock_ms():
            raise BusDeadlineExceeded("late")
        await super().publish(replace(message, deadline_ms=0), durable=durable)


class ForgetsDurable(MemoryBus):
    async def publish(self, message: Message, *, durable: bool = False) -> None:
        await super().publish(message, durable=durable and False)


class ForgetsKeys(MemoryBus):
    def _is_duplicate(self, message: Message) -> bool:
        return message.id == ""


class ForgetsTenantOfKey(MemoryBus):
    def _is_duplicate(self, message: Message) -> bool:
        return super()._is_duplicate(replace(message, tenant=""))


class SkipsDeadLetters(MemoryBus):
    def set_aside(self, *arguments: Any) -> None:
        pass


class ReplaysToAll(MemoryBus):
    async def replay(self, letter: DeadLetter) -> None:
        await self.discard(letter)
        await self.publish(replace(letter.message, idempotency_key="again"), durable=True)


class KeepsReplayed(MemoryBus):
    async def replay(self, letter: DeadLetter) -> None:
        await super().replay(letter)
        self._dead[letter.id] = letter


class SharesContent(MemoryBus):
    def _deliver(self, group: Any, payload: bytes, **options: Any) -> None:
        super()._deliver(group, payload, **options)
        for lane in group.queue._lanes.values():
            for delivery in lane:
                delivery.message = self._first = getattr(self, "_first", delivery.message)


class ClosesAtOnce(MemoryBus):
    async def close(self, *, timeout_s: float = 0.0) -> None:
        await super().close(timeout_s=timeout_s * 0)


class LeavesTasks(MemoryBus):
    async def close(self, *, timeout_s: float = 30.0) -> None:
        self._task = asyncio.create_task(asyncio.Event().wait())
        await super().close(timeout_s=timeout_s)


class LeavesAtOnce(MemoryBus):
    async def leave(self, topic: str, group: Any, member: Any) -> None:
        assert topic
        group.queue._members.remove(member)


class OverwritesIds(MemoryBus):
    async def request(self, message: Message, *, timeout_s: float | None = None) -> Message:
        return replace(await super().request(message, timeout_s=timeout_s), causation_id="")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (LosesFields, "A message arrives with all its fields"),
        (IgnoresGroups, "Each message goes to one member of a group"),
        (IgnoresSessions, "One member processes the messages of a session in order, one at a time"),
        (OneAtATime, "Messages of different sessions are processed at once"),
        (IgnoresConcurrency, "A subscription processes at most `concurrency` messages at once"),
        (MixesTenants, "Sessions of the same name of different tenants are different sessions"),
        (SwallowsErrors, "A request whose function raises an error raises its class name and text"),
        (SwallowsErrors, "A durable message is delivered again after a failure, before later ones of its session"),
        (NeverRefuses, "A request to a topic without subscription fails at once"),
        (IgnoresDeadlines, "A plain message that expires before its turn is set aside, and no function gets it"),
        (ForgetsDurable, "A durable group gets messages that were stored before it existed"),
        (ForgetsDurable, "A durable message is delivered again after a failure, before later ones of its session"),
        (ForgetsKeys, "Durable messages with the same key, topic and tenant are stored once"),
        (ForgetsTenantOfKey, "Durable messages with the same key, topic and tenant are stored once"),
        (
            SkipsDeadLetters,
            "A durable message that always fails is set aside with its reason, and its session continues",
        ),
        (SkipsDeadLetters, "A plain message whose function fails is set aside after one delivery"),
        (ReplaysToAll, "A replayed dead letter is delivered to its group alone, and removed"),
        (KeepsReplayed, "A replayed dead letter is delivered to its group alone, and removed"),
        (SharesContent, "A function that changes its message changes nothing elsewhere"),
        (ClosesAtOnce, "`close` waits for running functions; then the bus refuses all calls"),
        (LeavesTasks, "`close` cancels functions that do not end in time, and leaves no task"),
        (LeavesAtOnce, "`unsubscribe` returns when the messages that had arrived are processed, and ends the delivery"),
        (OverwritesIds, "A request returns the reply, which refers to the request"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_checks_find_broken_bus(kind: type[MemoryBus], sentence: str) -> None:
    """A hanging bus fails by the limit, so a slow machine cannot let it pass."""
    (check,) = [check for check in CHECKS if check.name == sentence]
    with pytest.raises(AssertionError):
        check(MemoryPlace(kind), limit_s=0.5)


def test_checks_find_retries_behind_later_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that repeats a failed message after the others of its session breaks the order."""

    async def fail(self: _MemoryDelivery, error: Exception, *, final: bool) -> None:
        del error, final
        self._group.queue.submit(self)

    monkeypatch.setattr(_MemoryDelivery, "fail", fail)
    (check,) = [check for check in CHECKS if "delivered again after a failure" in check.name]
    with pytest.raises(AssertionError):
        check(MemoryPlace(), limit_s=5)


def test_report_names_failed_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SubscriberGroup, "is_full", True)
    report = run(MemoryPlace, limit_s=0.05)
    assert not report.ok
    assert "FAILED" in str(report)
