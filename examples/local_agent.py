"""A conversation with a small local model: no key, no network. The workspace is the current folder."""

import asyncio
import time

import nexus
from nexus.agents import Agent
from nexus.models import LocalServer, Models
from nexus.types import StreamEnd, StreamError, Token


async def main(server: LocalServer) -> None:
    models = Models({server.model: server.client()})
    async with models, nexus.open_async(".", model=server.model, models=server.models) as nx:
        system = "You are a helpful assistant. Answer in one or two sentences."
        agent = Agent(nx, models, builtin=False, profile="bare", system=system, max_tokens=120, temperature=0)
        for question in ("Why is the sky blue?", "What is this process called?"):
            print(f"\n> {question}")
            start = time.monotonic()
            async for event in agent.stream(question, session="local"):
                if isinstance(event, (Token, StreamError)):
                    print(event.text, end="", flush=True)
                elif isinstance(event, StreamEnd):
                    tokens = f"{event.usage.input_tokens} tokens in, {event.usage.output_tokens} out"
                    print(f"\n[{server.model}: {tokens}, {time.monotonic() - start:.1f} s]")


with LocalServer() as server:
    asyncio.run(main(server))
