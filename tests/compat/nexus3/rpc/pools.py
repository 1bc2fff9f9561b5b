"""A pool on a scripted model server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from nexus.compat.nexus3.context import PromptLoader
from nexus.compat.nexus3.context.prompt_loader import FilePromptSource
from nexus.compat.nexus3.rpc.pool import AgentPool, SharedComponents
from nexus.models import RetryPolicy, open_client
from nexus.testing.model_server import ModelServer, Step, model_server, reply
from nexus.types.config import Config

T = TypeVar("T")


def weather(city: str) -> str:
    """Return the weather."""
    return f"Sunny in {city}."


def add(first: int, second: int) -> int:
    """Return a sum."""
    return first + second


@contextmanager
def script(*steps: Step) -> Iterator[ModelServer]:
    with model_server(*steps) as server:
        yield server


def is_summary(body: dict[str, Any]) -> bool:
    """Return whether a request asks for a summary."""
    return "Now write the notes." in str(body)


def answering(answer: str, summary: Step) -> Step:
    """Return a step that gives one answer, and a summary where one is asked for."""
    return lambda request: (summary if is_summary(request.body) else reply(answer))(request)


def components(server: ModelServer, folder: Path, **more: Any) -> SharedComponents:
    """Components with the prompt `folder/NEXUS.md`, a log in `folder/logs` and a client without retries."""
    provider = open_client(base_url=server.openai_url, retries=RetryPolicy(max_retries=0))
    loader = PromptLoader([FilePromptSource(folder / "NEXUS.md")], FilePromptSource(folder / "none.md"))
    options = {"config": Config(model="gpt-4o"), "prompt_loader": loader, "base_log_dir": folder / "logs", **more}
    return SharedComponents(provider=provider, **options)


def run(shared: SharedComponents, work: Callable[[AgentPool], Awaitable[T]]) -> T:
    """Run work on a pool and close both pool and provider."""

    async def main() -> T:
        try:
            async with AgentPool(shared) as pool:
                return await work(pool)
        finally:
            await shared.provider.aclose()

    return asyncio.run(main())


async def requests(server: ModelServer, count: int) -> None:
    """Wait until the server has received a number of requests."""
    for _ in range(1_000):
        if len(server.requests) >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"the server got {len(server.requests)} requests of {count}")


def sent_texts(body: dict[str, Any]) -> list[str]:
    """The texts of a request's messages, without the lines with the time."""
    return [str(message.get("content") or "").rpartition("\n\n")[2] for message in body["messages"][1:]]
