"""LangChain and LangGraph: a middleware that fits and records each model call, and a message history in the ledger.

agent = create_agent(model, tools, middleware=[NexusMiddleware(nexus.open("agent"), budget=32_000)])
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any, cast
from urllib.parse import quote

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import AutoStrategy, ToolStrategy
from langchain_core import messages as lc
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config

import nexus
from nexus.adapters.calls import Calls, async_engine, setting_for
from nexus.adapters.langchain_messages import neutral_message, new_messages, restored_messages, result_of
from nexus.adapters.own_messages import own_messages
from nexus.types import Commit, NewEntry

__all__ = ["NexusChatMessageHistory", "NexusMiddleware"]


class NexusMiddleware(AgentMiddleware[Any, Any]):
    """Shows the model what fits of the agent's messages, and records each call.

    `conversation` and `principal` are texts or functions of the request. By default a thread is a conversation, or a run
    without one. `options` are `budget` and other arguments of `nexus.Engine.mirror`.
    """

    def __init__(self, nx: Any, *, conversation: Any = None, principal: Any = None, **options: Any) -> None:
        super().__init__()
        self.conversation, self.principal = conversation, principal
        self.calls = Calls(nx, logging.getLogger(__name__), {"scope": "langchain", **options})

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Fit the request, call the model, record its reply."""
        record, fitted = self._fit(request)
        response = handler(fitted)
        record(response)
        return response

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Fit the request, call the model, record its reply."""
        record, fitted = await self.calls.nx.run(self._fit, request)
        response = await handler(fitted)
        await self.calls.nx.run(record, response)
        return response

    def _fit(self, request: Any) -> tuple[Callable[[Any], None], Any]:
        """Return a function that records the response, and the request to send. Replies at its end are sent as they are."""
        opening = [*takewhile(lambda message: message.type == "system", request.messages)]
        ending = [*takewhile(lambda m: m.type == "ai" and not m.tool_calls, reversed(request.messages))][::-1]
        middle = request.messages[len(opening) : len(request.messages) - len(ending)]
        neutral, before = [*map(neutral_message, middle)], [*map(neutral_message, ending)]
        conversation = (
            setting_for(request, self.conversation) or _thread() or self.calls.conversation_of(request.messages)
        )
        model = getattr(request.model, "model_name", None) or getattr(request.model, "model", "")
        system = "\n\n".join(filter(None, (request.system_prompt, *(message.text for message in opening))))
        tools = [*map(_tool, request.tools), *_output_tools(request.response_format)]
        arguments: dict[str, Any] = {"model": model if isinstance(model, str) else "", "system": system, "tools": tools}
        if self.principal is not None:
            arguments["principal"] = setting_for(request, self.principal)
        ctx = self.calls.fit(neutral, before, conversation=conversation, **arguments)

        def record(response: Any) -> None:
            response = getattr(response, "model_response", response)
            replies: list[Any] = getattr(response, "result", [response])
            self.calls.record(ctx, conversation, replies, lambda: result_of(before, replies))

        if ctx is None:
            return record, request
        messages = [*own_messages(ctx.messages, neutral, middle, new_messages), *ending]
        if ctx.system_prompt == system:
            return record, request.override(messages=[*opening, *messages])
        return record, request.override(messages=messages, system_prompt=ctx.system_prompt)


class NexusChatMessageHistory(BaseChatMessageHistory):
    """The messages of a session in the ledger, for `RunnableWithMessageHistory`."""

    def __init__(self, nx: Any, session_id: str, *, principal: str = "") -> None:
        self.nx = async_engine(nx)
        names = ("langchain-history", principal, session_id)
        self.session = "/".join(quote(name, "", errors="surrogatepass") for name in names)
        self._body = {"principal": principal} if principal else {}

    @property
    def messages(self) -> list[lc.BaseMessage]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The messages since the last `clear`."""
        messages: list[lc.BaseMessage] = []
        with suppress(nexus.NoSuchSession):
            for entry in self.nx.engine.entries(self.session):
                if entry.kind == "clear":
                    messages = []
                messages += (message for row in entry.rows for message in restored_messages(row.message))
        return messages

    def add_messages(self, messages: Sequence[lc.BaseMessage]) -> None:
        """Store messages, in one transaction."""
        if messages:
            nexus.add_messages(self.nx.engine, [*map(neutral_message, messages)], session=self.session, body=self._body)

    def clear(self) -> None:
        """Begin an empty conversation. Earlier messages stay in the ledger."""
        if self.nx.engine.ledger.resolve(self.session):
            self.nx.engine.ledger.commit(self.session, Commit((NewEntry("clear"),)))

    async def aget_messages(self) -> list[lc.BaseMessage]:
        """Return the messages since the last `clear`."""
        return await self.nx.run(lambda: self.messages)

    async def aadd_messages(self, messages: Sequence[lc.BaseMessage]) -> None:
        """Store messages, in one transaction."""
        await self.nx.run(self.add_messages, messages)

    async def aclear(self) -> None:
        """Begin an empty conversation. Earlier messages stay in the ledger."""
        await self.nx.run(self.clear)


def _thread() -> str:
    with suppress(RuntimeError):  # outside of a graph
        return str(get_config().get("configurable", {}).get("thread_id") or "")
    return ""


def _tool(tool: Any) -> dict[str, Any]:
    """Return a tool's definition; a provider's own tool is one already."""
    with suppress(ValueError):
        return convert_to_openai_tool(tool)
    return tool


def _output_tools(output: Any) -> Iterator[dict[str, Any]]:
    """Yield the definitions that the framework adds for structured output."""
    wanted = cast("Any", output).schema if isinstance(output, AutoStrategy) else output
    specs: list[Any] = [wanted.schema_spec] if hasattr(wanted, "schema_spec") else getattr(wanted, "schema_specs", [])
    if wanted is not None and not specs:
        specs = ToolStrategy[Any](wanted).schema_specs
    for spec in specs:
        yield {"name": spec.name, "description": spec.description, "parameters": spec.json_schema}
