"""Definitions of what an agent of OpenAI Agents offers a model, and the answers of models, in the terms of Nexus."""

from typing import Any

from agents import Agent, AgentOutputSchema, AgentOutputSchemaBase, ModelResponse, handoff

import nexus


def definitions(agent: Agent[Any], tools: list[Any]) -> list[dict[str, Any]]:
    """Return definitions of tools, handoffs and an output type, by which they are counted."""
    tool_definitions: list[dict[str, Any]] = []
    offers: list[Any] = [handoff(tool) if hasattr(tool, "handoffs") else tool for tool in tools]
    for offer in offers:
        name = getattr(offer, "tool_name", None) or offer.name
        text = getattr(offer, "description", None) or getattr(offer, "tool_description", None) or ""
        schema = getattr(offer, "params_json_schema", None) or getattr(offer, "input_json_schema", None)
        config = getattr(offer, "tool_config", None)
        tool_definitions.append({"name": name, "description": f"{text}{config or ''}", "parameters": schema or {}})
    output: Any = agent.output_type
    if output is not None and not isinstance(output, AgentOutputSchemaBase):
        output = AgentOutputSchema(output)
    if output is not None and not output.is_plain_text():
        tool_definitions.append({"name": "output_format", "description": "", "parameters": output.json_schema()})
    return tool_definitions


def result_of(response: ModelResponse) -> nexus.AgentResult:
    """Return what is recorded of a response."""
    messages = nexus.read_messages(response.to_input_items(), "responses")
    usage = response.usage
    read, reasoned = usage.input_tokens_details, usage.output_tokens_details
    tokens = nexus.TokenUsage(
        usage.input_tokens,
        usage.output_tokens,
        read.cached_tokens or 0,
        getattr(read, "cache_write_tokens", 0) or 0,
        reasoned.reasoning_tokens or 0,
    )
    reason = "tool_use" if any(any(message.calls()) for message in messages) else "end_turn"
    if any(getattr(item, "status", "") == "incomplete" for item in response.output):
        reason = "max_tokens"
    return nexus.AgentResult(tuple(messages), tokens, reason)
