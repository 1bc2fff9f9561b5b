"""Microsoft agent-framework: a chat middleware that fits and records each model call.

agent = Agent(client, tools=tools, middleware=[NexusChatMiddleware(nexus.open("agent"), budget=32_000)])
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import takewhile
from typing import Any, cast

from agent_framework import ChatContext, ChatMiddleware, ChatResponse, Content, Message

import nexus
from nexus.adapters.agent_framework_messages import neutral_message, new_messages, result_of
from nexus.adapters.calls import Calls, setting_for
from nexus.adapters.own_messages import fields_of, own_messages

__all__ = ["NexusChatMiddleware"]


class NexusChatMiddleware(ChatMiddleware):
    """Shows the model what fits of a conversation, and records each call.

    `conversation` and `principal` are texts or functions of the `ChatContext`. By default a session is a conversation, or
    a run without one. `options` are `budget` and other arguments of `nexus.Engine.mirror`.
    """

    def __init__(self, nx: Any, *, conversation: Any = None, principal: Any = None, **options: Any) -> None:
        self.conversation, self.principal = conversation, principal
        self.calls = Calls(nx, logging.getLogger(__name__), {"scope": "agent-framework", **options})

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Fit the messages, call the model, record its reply. A list that continues one of the service is left alone."""
        options = context.options or {}
        if options.get("conversation_id"):
            await call_next()
            return
        record = await self.calls.nx.run(self._fit, context, options)
        if context.stream:
            context.stream_result_hooks.append(partial(self.calls.nx.run, record))
        await call_next()
        if isinstance(context.result, ChatResponse):
            await self.calls.nx.run(record, context.result)

    def _fit(self, context: ChatContext, options: Mapping[str, Any]) -> Callable[[Any], None]:
        """Set the messages to send, and return the function that records the response."""
        opening = [*takewhile(lambda message: message.role == "system", context.messages)]
        middle = context.messages[len(opening) :]
        ending = [*takewhile(_is_text_reply, reversed(middle))][::-1]
        middle = middle[: len(middle) - len(ending)]
        neutral, before = [*map(neutral_message, middle)], [*map(neutral_message, ending)]
        session = context.session.session_id if context.session else ""
        conversation = (
            setting_for(context, self.conversation)
            or session
            or self.calls.conversation_of(_contents(context.messages))
        )
        system = "\n\n".join(filter(None, (str(options.get("instructions") or ""), *(m.text for m in opening))))
        model = options.get("model") or options.get("model_id") or getattr(context.client, "model", "")
        arguments = {"model": str(model or ""), "system": system, "tools": [*_tools(options)]}
        if self.principal is not None:
            arguments["principal"] = setting_for(context, self.principal)
        ctx = self.calls.fit(neutral, before, conversation=conversation, **arguments)
        if ctx is not None:
            fitted = own_messages(ctx.messages, neutral, middle, new_messages, _as_first_sent)
            if ctx.system_prompt != system:
                opening = [Message("system", [ctx.system_prompt])]
                context.options = {**options, "instructions": None}
            context.messages = [*opening, *fitted, *ending]

        def record(response: ChatResponse[Any]) -> None:
            self.calls.record(ctx, conversation, _contents(response.messages), lambda: result_of(before, response))

        return record


def _contents(messages: Iterable[Message]) -> list[Content]:
    """Return the contents of messages, which stay the same objects when the framework copies the messages."""
    return [content for message in messages for content in message.contents]


def _is_text_reply(message: Message) -> bool:
    return message.role == "assistant" and all(content.type != "function_call" for content in message.contents)


def _as_first_sent(message: Message, stored: nexus.Message) -> Message:
    """Return a message without the name that an agent gives its replies when it is done, so that prompts are extended."""
    name = fields_of(stored).get("author_name")
    if name == message.author_name:
        return message
    fields: dict[str, Any] = {"message_id": message.message_id, "raw_representation": message.raw_representation}
    return Message(
        message.role, message.contents, author_name=name, additional_properties=message.additional_properties, **fields
    )


def _tools(options: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the definitions of tools and of structured output."""
    tools: Any = options.get("tools") or []
    listed = cast("list[Any]", tools) if isinstance(tools, list) else [tools]
    for tool in listed:
        yield tool.to_json_schema_spec() if hasattr(tool, "to_json_schema_spec") else tool
    wanted = options.get("response_format")
    if wanted is not None:
        schema = wanted.model_json_schema() if hasattr(wanted, "model_json_schema") else wanted
        yield {"name": "response_format", "description": "", "parameters": schema}
