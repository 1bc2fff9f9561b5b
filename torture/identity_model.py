"""The model of agents in the torture `identity`: it takes its time, so that replies come in any order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any, Final

import nexus
from nexus import AgentResult
from nexus.context import AssembledContext
from nexus.errors import ModelCallFailed
from nexus.models import ModelReply
from torture.identity_judge import Judge

PAUSE_S: Final = 0.004
FAILURE: Final = "no credit"


@dataclass(slots=True)
class JudgedModel:
    """A client of a model whose replies are those of a function, which checks each context."""

    judge: Judge
    reply: Callable[[AssembledContext], nexus.Message]

    async def stream(self, ctx: AssembledContext) -> AsyncGenerator[Any]:
        """Yield a reply."""
        await asyncio.sleep(PAUSE_S * self.judge.dice.random())
        try:
            reply = self.reply(ctx)
        except ModelCallFailed:
            raise
        except Exception as error:
            self.judge.faults.append(f"the judge failed: {error!r}")
            raise
        await asyncio.sleep(PAUSE_S * self.judge.dice.random())
        calls = reply.calls()
        yield ModelReply(AgentResult((reply,), stop_reason="tool_use" if calls else "end_turn", model="gpt-4o"), 0.001)

    async def complete(self, ctx: AssembledContext) -> ModelReply:
        """Return the reply."""
        return [item async for item in self.stream(ctx)][-1]

    async def aclose(self) -> None:
        """Do nothing."""
