"""OpenAI Agents: one object that keeps a session, fits the model's input into a token budget and stores every message.

    memory = NexusSession("main", await nexus.open_async("agent"), budget=32_000)
    config = RunConfig(call_model_input_filter=memory)
    await Runner.run(agent, "Hello", session=memory, hooks=memory, run_config=config)

A message is stored with the reply to it. Use an object for one run at a time.
"""

from typing import Any

from agents import Agent, FunctionTool, ModelResponse, RunHooks, TResponseInputItem
from agents.run import CallModelData, ModelInputData

import nexus


class NexusSession(RunHooks[Any]):
    """A session, hooks and input filter; `options` are arguments of `nexus.Engine.mirror`."""

    session_settings = None

    def __init__(self, session_id: str, nx: nexus.AsyncEngine, **options: Any) -> None:
        self.session_id, self.nx, self.options = session_id, nx, options
        self.items: list[TResponseInputItem] | None = None
        self.sent: nexus.AssembledContext | None = None

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        if self.items is None:
            sessions = await self.nx.run(self.nx.engine.sessions)
            label = next((s.label for s in sessions if s.label.startswith(f"agents/{self.session_id}~")), None)
            self.items = nexus.write_messages(await self.nx.history(label), "responses") if label else []
        return self.items[max(len(self.items) - limit, 0) :] if limit is not None else [*self.items]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        self.items = [*await self.get_items(), *items]

    async def pop_item(self) -> TResponseInputItem | None:
        return self.items.pop() if await self.get_items() else None

    async def clear_session(self) -> None:
        self.items = []

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        asked, tools = data.model_data, [tool for tool in data.agent.tools if isinstance(tool, FunctionTool)]
        self.sent = await self.nx.mirror(
            asked.input,
            scope="agents",
            conversation=self.session_id,
            provider="responses",
            system=asked.instructions or "",
            tools=[{"name": t.name, "description": t.description, "parameters": t.params_json_schema} for t in tools],
            **self.options,
        )
        return ModelInputData(self.sent.to_responses()["input"], self.sent.system_prompt)

    async def on_llm_end(self, context: Any, agent: Agent[Any], response: ModelResponse) -> None:  # noqa: ARG002
        messages = nexus.read_messages(response.to_input_items(), "responses")
        usage = nexus.TokenUsage(response.usage.input_tokens, response.usage.output_tokens)
        await self.nx.record(self.sent, nexus.AgentResult(tuple(messages), usage))
