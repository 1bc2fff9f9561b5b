"""OpenAI Agents: one object that keeps a session, fits each input of a model into a token budget, and records the calls.

    memory = NexusSession("chat", nexus.open(ledger="ledger.db"), budget=32_000)
    config = RunConfig(call_model_input_filter=memory)
    await Runner.run(agent, "Hello", session=memory, hooks=memory, run_config=config)

The session has every item. The model gets those that fit, the same objects where nothing was changed.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

from agents import Agent, ModelResponse, RunContextWrapper, RunHooks, TResponseInputItem
from agents.memory import SessionSettings
from agents.run import CallModelData, ModelInputData

import nexus
from nexus.adapters.calls import async_engine
from nexus.adapters.openai_agents_calls import definitions, result_of
from nexus.errors import BadSetting, HeadMoved

LOG = logging.getLogger("nexus.adapters.openai_agents")

SESSION, ITEM = "adapter:openai-agents:session", "adapter:openai-agents:item"
"""Kinds of the documents that have a session's newest item, and its items, each with the one before it."""

WAITING: ContextVar[list[nexus.AssembledContext]] = ContextVar("WAITING")
"""The call of a run that waits for its answer. Each run has its own, also on one object."""


class NexusSession(RunHooks[Any]):
    """A session, run hooks and a filter of the model's input.

    Sessions of different users are different ones: `principal` is the user. `options` are arguments of
    `nexus.Engine.mirror`, such as `budget`, and `model` for agents whose model is an object without a name.
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self, session_id: str, nx: nexus.Engine | nexus.AsyncEngine, *, principal: str | None = None, **options: Any
    ) -> None:
        if not session_id:
            raise BadSetting("session of OpenAI Agents has no id (pass one that no other conversation has)")
        self.session_id = session_id
        self.nx = async_engine(nx)
        self.options: dict[str, Any] = {
            "scope": "openai-agents",
            **({} if principal is None else {"principal": principal}),
            **options,
        }
        self._name = json.dumps([principal, session_id])
        self._owner = {"principal": principal or ""}
        """In each document, so that it is erased with its person."""
        self._documents = self.nx.engine.ledger.store

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items, or the newest ones of them."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        return await self.nx.run(lambda: [item for _, item, _ in self._path(self._head()[0], limit)][::-1])

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Store items behind the others."""
        await self.nx.run(self._add, items)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it; None if there is none."""
        return next(iter(await self.nx.run(self._remove, 1)), None)

    async def clear_session(self) -> None:
        """Remove all items. Recorded calls stay in the ledger."""
        await self.nx.run(self._remove, None)

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the input that fits."""
        model_data, agent = data.model_data, data.agent
        model = agent.model if isinstance(agent.model, str) else getattr(agent.model, "model", None)
        tools: list[Any] = [*await agent.get_all_tools(RunContextWrapper(data.context)), *agent.handoffs]
        call: dict[str, Any] = {"model": model} if isinstance(model, str) and model else {}
        call |= {"system": model_data.instructions or "", "tools": definitions(agent, tools), **self.options}
        fitted = await self.nx.mirror(model_data.input, conversation=self.session_id, provider="responses", **call)
        WAITING.set([fitted])
        if fitted.mirrored is not None and fitted.mirrored.has_unchanged_list:
            return model_data
        originals: dict[str, Any] = {json.dumps(item, sort_keys=True): item for item in model_data.input}
        items = [originals.get(json.dumps(item, sort_keys=True), item) for item in fitted.to_responses()["input"]]
        return ModelInputData(items, model_data.instructions)

    async def on_llm_end(self, context: Any, agent: Agent[Any], response: ModelResponse) -> None:  # noqa: ARG002
        """Record an answer."""
        waiting = WAITING.get([])
        if not waiting:
            return
        try:
            await self.nx.record(waiting.pop(), result_of(response))
        except Exception as error:  # noqa: BLE001 - the run continues with its answer
            LOG.warning("call not recorded: %s", error)

    def _head(self) -> tuple[str | None, int]:
        """Return the id of the newest item, and the number of the session's document."""
        document = self._documents.document(SESSION, self._name)
        return (document.body["newest"], document.number) if document else (None, 0)

    def _path(self, item_id: str | None, limit: int | None) -> Iterator[tuple[str, Any, str | None]]:
        """Yield ids and items, the newest first, each with the id of the one before it."""
        count = 0
        while item_id and count != limit and (document := self._documents.document(ITEM, item_id)):
            yield item_id, json.loads(document.body["json"]), document.body["before"]
            item_id = document.body["before"]
            count += 1

    def _add(self, items: list[TResponseInputItem]) -> None:
        texts = [json.dumps(item) for item in items]
        ids = [uuid4().hex for _ in items]
        while items:
            newest, number = self._head()
            for item_id, before, text in zip(ids, [newest, *ids], texts, strict=False):
                self._documents.put_document(ITEM, item_id, {**self._owner, "json": text, "before": before})
            with suppress(HeadMoved):
                self._documents.put_document(
                    SESSION, self._name, {**self._owner, "newest": ids[-1]}, expected_number=number
                )
                return

    def _remove(self, limit: int | None) -> list[Any]:
        while True:
            newest, number = self._head()
            removed = [*self._path(newest, limit)]
            if not removed:
                return []
            with suppress(HeadMoved):
                body = {**self._owner, "newest": removed[-1][2]}
                self._documents.put_document(SESSION, self._name, body, expected_number=number)
                break
        for item_id, _, _ in removed:
            self._documents.delete_document(ITEM, item_id)
        return [item for _, item, _ in removed]
