"""LangChain: `trim_messages`, and the `SummarizationMiddleware` for agents, called as its agent loop calls it."""

from __future__ import annotations

from typing import Any, ClassVar

from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    SystemMessage,
    convert_to_messages,
    convert_to_openai_messages,
    trim_messages,  # pyright: ignore[reportUnknownVariableType]
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph.message import add_messages
from langgraph.runtime import Runtime

from benchmarks.bodies import Remembered, serialised
from benchmarks.peers.course import Exchange, Messages
from benchmarks.peers.side import SUMMARY, Setting, Side, Usage
from benchmarks.policies import DOCUMENTED


class ChatFixed(BaseChatModel):
    """A model that answers every request with the same summary, and counts how often it was asked."""

    asked: int = 0

    @property
    def _llm_type(self) -> str:
        return "fixed"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        self.asked += 1
        return ChatResult(generations=[ChatGeneration(message=AIMessage(SUMMARY))])


def heard(exchange: Exchange) -> list[Any]:
    """What is new, as LangChain's messages."""
    return convert_to_messages(exchange.event)


def said(exchange: Exchange, usage: Usage) -> list[Any]:
    """The answer, with the usage that a provider would report on its last message."""
    messages: list[Any] = convert_to_messages(exchange.reply)
    if usage.input_tokens and messages and isinstance(messages[-1], AIMessage):
        total = usage.input_tokens + usage.output_tokens
        told = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "total_tokens": total}
        messages[-1] = messages[-1].model_copy(
            update={"usage_metadata": told, "response_metadata": {"model_provider": "fixed"}}
        )
    return messages


class TrimDocumented(Side):
    """`trim_messages` as documented for chat models."""

    options: ClassVar[dict[str, Any]] = DOCUMENTED

    def __init__(self, setting: Setting) -> None:
        self._counter = Remembered()
        self._sizes: dict[int, int] = {}
        self._budget = setting.budget
        self._messages: list[BaseMessage] = []
        self._take([SystemMessage(setting.system)])

    def _take(self, messages: list[BaseMessage]) -> None:
        for message in messages:
            self._sizes[id(message)] = self._counter.count(serialised(convert_to_openai_messages(message)))
        self._messages.extend(messages)

    def hear(self, exchange: Exchange) -> None:
        """Appends the event."""
        self._take(heard(exchange))

    def step(self) -> list[BaseMessage]:
        """The messages that are kept."""
        return trim_messages(
            self._messages,
            max_tokens=self._budget,
            token_counter=self._count,
            strategy="last",
            include_system=True,
            **self.options,
        )

    def _count(self, messages: list[BaseMessage]) -> int:
        return sum(self._sizes[id(message)] for message in messages)

    def shown(self, made: list[BaseMessage]) -> Messages:
        """The kept messages as they are."""
        return convert_to_openai_messages(made)

    def say(self, exchange: Exchange, usage: Usage) -> None:
        """Appends the answer."""
        self._take(said(exchange, usage))


class TrimBare(TrimDocumented):
    """`trim_messages` without `start_on` and `end_on`."""

    options: ClassVar[dict[str, Any]] = {}


class Summarization(Side):
    """The middleware's `before_model`, its update applied to the agent's state by LangGraph's own reducer."""

    def __init__(self, setting: Setting, **options: Any) -> None:
        self._system = setting.system
        self._model = ChatFixed()
        self._middleware = SummarizationMiddleware(model=self._model, trigger=("tokens", setting.budget), **options)
        self._messages: list[Any] = []

    @property
    def summaries(self) -> int:
        """How often the model was asked."""
        return self._model.asked

    def hear(self, exchange: Exchange) -> None:
        """Appends the event."""
        self._messages.extend(heard(exchange))

    def step(self) -> list[Any]:
        """The state's messages after the hook."""
        update = self._middleware.before_model({"messages": self._messages}, Runtime())
        if update is not None:
            self._messages = list(add_messages(self._messages, update["messages"]))
        return self._messages

    def shown(self, made: list[BaseMessage]) -> Messages:
        """The agent's system prompt, then the messages."""
        return convert_to_openai_messages([SystemMessage(self._system), *made])

    def say(self, exchange: Exchange, usage: Usage) -> None:
        """Appends the answer."""
        self._messages.extend(said(exchange, usage))


class SummarizationKeepingTokens(Summarization):
    """The middleware with half of the budget kept, by tokens."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, keep=("tokens", setting.budget // 2))
