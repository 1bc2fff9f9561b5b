"""deepagents: its `SummarizationMiddleware`, made by its factory and called around a model call that only looks."""

from __future__ import annotations

from collections.abc import Iterable
from tempfile import TemporaryDirectory
from typing import Any, cast

from deepagents.backends import FilesystemBackend
from deepagents.middleware.summarization import create_summarization_middleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, SystemMessage, convert_to_openai_messages
from langgraph.graph.message import add_messages

from benchmarks.peers.course import Exchange, Messages
from benchmarks.peers.langchain_side import ChatFixed, heard, said
from benchmarks.peers.side import Setting, Side, Usage


class Summarization(Side):
    """`wrap_model_call`; the state that it returns is kept for the next call, as the agent's loop does."""

    def __init__(self, setting: Setting) -> None:
        self._folder = TemporaryDirectory()
        self._system = SystemMessage(setting.system)
        self._tools: list[Any] = setting.tools
        self._model = ChatFixed(profile={"max_input_tokens": setting.budget})
        backend = FilesystemBackend(root_dir=self._folder.name, virtual_mode=True)
        self._middleware = create_summarization_middleware(self._model, backend)
        self._state: Any = {"messages": []}
        self._sent: list[Any] = []

    @property
    def summaries(self) -> int:
        """How often the model was asked."""
        return self._model.asked

    def hear(self, exchange: Exchange) -> None:
        """Appends the event; the reducer gives ids, by which the middleware finds messages again."""
        self._state["messages"] = add_messages(self._state["messages"], heard(exchange))

    def load(self, exchanges: Iterable[Exchange]) -> None:
        """All at once: the reducer looks at every message each time."""
        new = [message for exchange in exchanges for message in (*heard(exchange), *said(exchange, Usage()))]
        self._state["messages"] = add_messages(self._state["messages"], new)

    def step(self) -> list[Any]:
        """The messages with which the middleware calls the model."""
        request = ModelRequest(
            model=self._model,
            messages=self._state["messages"],
            system_message=self._system,
            tools=self._tools,
            state=self._state,
        )
        response = self._middleware.wrap_model_call(request, self._call)
        if isinstance(response, ExtendedModelResponse) and response.command is not None:
            update: dict[str, Any] = {**cast("dict[str, Any]", response.command.update)}
            replaced = update.pop("messages", [])
            self._state.update(update)
            self._state["messages"] = add_messages(self._state["messages"], replaced)
        return self._sent

    def _call(self, request: ModelRequest) -> ModelResponse:
        self._sent = list(request.messages)
        return ModelResponse(result=[AIMessage("")])

    def shown(self, made: list[Any]) -> Messages:
        """The agent's system prompt, then the messages."""
        return convert_to_openai_messages([self._system, *made])

    def say(self, exchange: Exchange, usage: Usage) -> None:
        """Appends the answer."""
        self._state["messages"] = add_messages(self._state["messages"], said(exchange, usage))
