"""What a warm call keeps from the calls before it: a change by the caller or another program shows at the next call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nexus

REPLY = nexus.AgentResult((nexus.assistant("Yes."),), model="gpt-4o")


@pytest.fixture
def nx(tmp_path: Path) -> Iterator[nexus.Engine]:
    with nexus.open(ledger=tmp_path / "ledger.db", home=tmp_path, model="gpt-4o") as nx:
        yield nx


def assemble(nx: nexus.Engine, **options: Any) -> nexus.AssembledContext:
    return nx.assemble("And then?", session="main", **options)


def test_definition_that_its_owner_changed_is_sent_as_it_is_now(nx: nexus.Engine) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"place": {"type": "string"}}}
    tools = [{"name": "look", "description": "Look.", "parameters": schema}]
    before = assemble(nx, tools=tools)
    schema["properties"]["when"] = {"type": "string"}
    after = assemble(nx, tools=tools)
    assert list(before.tools[0].schema["properties"]) == ["place"]
    assert list(before.to_openai()["tools"][0]["function"]["parameters"]["properties"]) == ["place"]
    assert list(after.tools[0].schema["properties"]) == ["place", "when"]
    schema["properties"].clear()
    assert list(after.provenance.tool_definitions[0]["parameters"]["properties"]) == ["place", "when"]


def test_tool_that_a_policy_denies_from_now_on_is_not_offered(tmp_path: Path, nx: nexus.Engine) -> None:
    tools = [{"name": name, "description": "", "parameters": {"type": "object"}} for name in ("look", "bash")]
    assert [tool.name for tool in assemble(nx, tools=tools).tools] == ["bash", "look"]
    workspace = tmp_path / "workspace"
    (workspace / ".nexus").mkdir(parents=True)
    with nexus.open(workspace, ledger=":memory:", home=tmp_path / "home", model="gpt-4o") as other:
        assert len(assemble(other, tools=tools).tools) == 2
        (workspace / ".nexus" / "policy.toml").write_text('[roles.unified]\ndeny = ["bash"]\n')
        assert [tool.name for tool in assemble(other, tools=tools).tools] == ["look"]
    assert len(assemble(nx, tools=tools).tools) == 2
