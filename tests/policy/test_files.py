"""Policy files as an engine meets them: which hold, when they are read, and that no damage opens anything."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.engine import Engine
from nexus.errors import BadConfig, NotAllowed
from nexus.ledger.sqlite import SqliteLedger
from nexus.policy import Policy, RoleRule, Toolset
from nexus.policy.link import link_principal
from nexus.types.message import ToolCall, assistant, tool
from support.errors import has_code

TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("run_command", "read_file", "write_file")]
LOOK = '[toolsets.look]\ntools = ["read_file"]\n[default]\ntoolset = "look"\n'
ALL = '[toolsets.all]\ntools = ["*"]\n[default]\ntoolset = "all"\n'
ANN = """
[toolsets.full]
tools = ["*"]
[principals."telegram:42"]
person = "ann"
toolset = "full"
[principals."imessage:+1555"]
person = "ann"
toolset = "full"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "ws" / ".nexus").mkdir(parents=True)
    return tmp_path / "ws"


def opened(root: Path, home: Path, **more: Any) -> Engine:
    return nexus.open(root, home=home, **more)


def names(nx: Engine, **more: Any) -> list[str]:
    return [spec.name for spec in nx.assemble("hi", tools=TOOLS, **more).tools]


def mine(home: Path, text: str) -> Path:
    (home / "policy.toml").write_text(text, "utf-8")
    return home / "policy.toml"


def theirs(root: Path, text: str) -> Path:
    (root / ".nexus" / "policy.toml").write_text(text, "utf-8")
    return root / ".nexus" / "policy.toml"


def test_all_tools_are_offered_without_policy_files(root: Path, home: Path) -> None:
    assert names(opened(root, home)) == ["read_file", "run_command", "write_file"]


@pytest.mark.parametrize("where", ["user", "workspace"])
def test_each_policy_file_filters_offered_tools(root: Path, home: Path, where: str) -> None:
    mine(home, LOOK) if where == "user" else theirs(root, LOOK)
    nx = opened(root, home)
    assert names(nx) == ["read_file"]
    assert "run_command" not in json.dumps(nx.assemble("hi", tools=TOOLS).to_anthropic())


def test_both_policy_files_restrict_together(root: Path, home: Path) -> None:
    mine(home, LOOK)
    theirs(root, ALL)
    assert names(opened(root, home)) == ["read_file"]
    mine(home, ALL)
    theirs(root, LOOK)
    assert names(opened(root, home)) == ["read_file"]


def test_changed_policy_file_applies_to_next_call(root: Path, home: Path) -> None:
    path = theirs(root, LOOK)
    nx = opened(root, home)
    assert names(nx) == ["read_file"]
    path.write_text(ALL)
    assert names(nx) == ["read_file", "run_command", "write_file"]
    path.write_text("[")
    with pytest.raises(BadConfig, check=has_code("bad_policy")):
        nx.assemble("hi")
    path.write_text(LOOK)
    assert names(nx) == ["read_file"]


def test_warm_call_reads_no_policy_file(root: Path, home: Path) -> None:
    theirs(root, LOOK)
    nx = opened(root, home)
    first = nx.policies.read()
    assert nx.policies.read() is first


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _binary(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")


def _huge(path: Path) -> None:
    path.write_text("#" * 1_000_001)


def _dangling(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def _circle(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [_folder, _pipe, _binary, _huge, _dangling, _circle])
@pytest.mark.parametrize("where", ["user", "workspace"])
def test_unreadable_policy_file_rejects_every_call(root: Path, home: Path, where: str, make: Any) -> None:
    make(home / "policy.toml" if where == "user" else root / ".nexus" / "policy.toml")
    nx = opened(root, home)
    with pytest.raises(BadConfig, match=r"policy\.toml: expected .*no context is made", check=has_code("bad_policy")):
        nx.assemble("hi", tools=TOOLS)
    assert nx.sessions() == []


def test_workspace_policy_link_outside_is_rejected(root: Path, home: Path) -> None:
    outside = root.parent / "mine.toml"
    outside.write_text(LOOK)
    (home / "policy.toml").symlink_to(outside)
    nx = opened(root, home)
    assert names(nx) == ["read_file"]
    (root / ".nexus" / "policy.toml").symlink_to(outside)
    with pytest.raises(BadConfig, match="not a link out of it", check=has_code("bad_policy")):
        nx.assemble("hi")


def test_policy_argument_replaces_policy_files(root: Path, home: Path, tmp_path: Path) -> None:
    mine(home, LOOK)
    theirs(root, LOOK)
    own = Policy(roles={"unified": RoleRule(deny=("run_*",))})
    assert names(opened(root, home, policy=own)) == ["read_file", "write_file"]
    file = tmp_path / "own.toml"
    file.write_text(ALL)
    nx = opened(root, home, policy=file)
    assert names(nx) == ["read_file", "run_command", "write_file"]
    file.unlink()
    with pytest.raises(BadConfig, match=r"own\.toml", check=has_code("bad_policy")):
        nx.assemble("hi")


def test_policy_argument_is_checked_when_engine_opens(root: Path) -> None:
    with pytest.raises(BadConfig, match="none is defined", check=has_code("bad_policy")):
        nexus.open(root, policy=Policy(roles={"worker": RoleRule("nothing")}))


def test_call_of_denied_tool_raises_with_toolset_role_and_reason(root: Path, home: Path) -> None:
    """Tools are filtered before the model sees them and checked again when they are called."""
    theirs(root, LOOK)
    nx = opened(root, home)
    ctx = nx.assemble("hi", tools=TOOLS)
    assert (ctx.allows("read_file"), ctx.allows("run_command"), ctx.allows("READ_FILE")) == (True, False, False)
    nx.check_tool(ctx, "read_file")
    with pytest.raises(
        NotAllowed,
        match=r"'run_command' is not allowed \(toolset 'look', role unified\)",
        check=has_code("tool_not_allowed"),
    ) as caught:
        nx.check_tool(ctx, "run_command")
    error = caught.value
    assert (error.tool, error.toolset, error.role, error.reason) == (
        "run_command", "look", "unified", "not in toolset 'look'",
    )  # fmt: skip
    with pytest.raises(NotAllowed, match="not offered with this context", check=has_code("tool_not_allowed")):
        nx.check_tool(ctx, "invented")


def test_offered_tools_stay_callable_after_policy_change(root: Path, home: Path) -> None:
    path = theirs(root, ALL)
    nx = opened(root, home)
    ctx = nx.assemble("hi", tools=TOOLS)
    path.write_text(LOOK)
    nx.check_tool(ctx, "run_command")
    assert not nx.assemble("hi", tools=TOOLS).allows("run_command")


def test_grant_and_denied_tools_are_stored_with_turn(root: Path, home: Path) -> None:
    """Document 002, AssembledContext: `toolsetName` and `permissionsGranted`, "for ledger writes after execution"."""
    theirs(root, LOOK.replace("[default]", '[default]\npermissions = ["read"]'))
    nx = opened(root, home)
    ctx = nx.assemble("hi", session="s", tools=TOOLS, principal="telegram:42")
    assert (ctx.toolset_name, ctx.permissions_granted) == ("look", ("read",))
    nx.record(ctx, nexus.AgentResult((assistant("ok"),)))
    body = nx.ledger.entries("s")[0].body
    assert (body["toolset"], body["permissions"], body["tools"]) == ("look", ["read"], ["read_file"])
    assert body["principal"] == "telegram:42"
    assert nx.replay("s", 1).provenance.denied_tools == ctx.provenance.denied_tools


def test_explanation_lists_tools_with_reasons_for_past_calls_too(root: Path, home: Path) -> None:
    path = theirs(root, LOOK)
    nx = opened(root, home)
    nx.record(nx.assemble("hi", session="s", tools=TOOLS), nexus.AgentResult((assistant("ok"),)))
    path.write_text(ALL)
    lines = [line for line in nx.explain("s", 1).lines if line.kind == "tool"]
    assert [(line.state, line.name, line.reason) for line in lines] == [
        ("included", "read_file", "offered"),
        ("omitted", "run_command", "not in toolset 'look'"),
        ("omitted", "write_file", "not in toolset 'look'"),
    ]
    assert [line.tokens for line in lines[1:]] == [0, 0]
    assert all(line.full_tokens > 0 for line in lines)
    told = nx.explain("s", 1)
    assert sum(line.tokens for line in told.lines) == told.used


def test_tool_order_does_not_change_request_body(root: Path, home: Path) -> None:
    theirs(root, LOOK.replace('"read_file"', '"read_file", "write_*"'))
    nx = opened(root, home, clock_ms=lambda: 1_770_379_200_000)
    one, two = (nx.assemble("hi", tools=tools) for tools in (TOOLS, TOOLS[::-1]))
    assert json.dumps(one.to_anthropic()) == json.dumps(two.to_anthropic())


def test_offered_tools_do_not_change_within_tool_loop(root: Path, home: Path) -> None:
    theirs(root, LOOK)
    nx = opened(root, home)
    first = nx.assemble("hi", session="s", tools=TOOLS, principal="p")
    nx.record(first, nexus.AgentResult((assistant("", ToolCall("c", "read_file", "{}")),)))
    second = nx.assemble([tool("c", "text", "read_file")], session="s", tools=TOOLS, principal="p")
    assert second.tools == first.tools
    assert second.accounting.prefix.state == "extends"


def test_session_of_person_is_shared_by_its_principals_only(root: Path, home: Path) -> None:
    mine(home, ANN)
    nx = opened(root, home)
    ctx = nx.assemble("my door is blue", principal="telegram:42")
    nx.record(ctx, nexus.AgentResult((assistant("noted"),)))
    assert ctx.session_label == "dm:ann"
    assert "my door is blue" in json.dumps(nx.assemble("and?", principal="imessage:+1555").to_openai())
    assert "my door is blue" not in json.dumps(nx.assemble("and?", principal="telegram:43").to_openai())
    with pytest.raises(NotAllowed):
        nx.assemble("and?", session="dm:ann", principal="telegram:43")
    nx.ledger.sessions.alias("shortcut", "dm:ann")
    with pytest.raises(NotAllowed):
        nx.assemble("and?", session="shortcut", principal="telegram:43")


def test_same_label_in_another_ledger_is_separate(root: Path, home: Path) -> None:
    mine(home, ANN)
    file = str(root / "shared.db")
    with opened(root, home, ledger=SqliteLedger(file, tenant="one")) as nx:
        nx.record(nx.assemble("my door is blue", principal="telegram:42"), nexus.AgentResult((assistant("noted"),)))
    with opened(root, home, ledger=SqliteLedger(file, tenant="two")) as nx:
        assert len(nx.assemble("and?", principal="telegram:42").history) == 0
        assert len(nx.assemble("and?", session="one/dm:ann").history) == 0


def said(nx: Engine, session: str, text: str) -> None:
    nx.record(nx.assemble(text, session=session), nexus.AgentResult((assistant("ok"),)))


def test_link_renames_session_and_keeps_old_label_as_alias(root: Path, home: Path) -> None:
    nx = opened(root, home)
    said(nx, "dm:telegram:42", "first")
    mine(home, ANN)
    done = link_principal(nx.ledger, nx.policies.read(), "telegram:42")
    assert (done.kind, done.old, done.new) == ("renamed", "dm:telegram:42", "dm:ann")
    assert nx.ledger.resolve("dm:telegram:42") == "dm:ann"
    old = nx.assemble("hi", session="dm:telegram:42", principal="telegram:42")
    new = nx.assemble("hi", principal="imessage:+1555")
    assert list(old.history) == list(new.history) != []
    assert link_principal(nx.ledger, nx.policies.read(), "telegram:42").kind == "nothing"


def test_link_to_existing_session_does_not_mix_histories(root: Path, home: Path) -> None:
    nx = opened(root, home)
    said(nx, "dm:telegram:42", "from telegram")
    said(nx, "dm:ann", "from ann")
    mine(home, ANN)
    done = link_principal(nx.ledger, nx.policies.read(), "telegram:42")
    assert (done.kind, done.target) == ("merged", "dm:telegram:42~merged")
    told = json.dumps(nx.assemble("hi", session="dm:telegram:42", principal="telegram:42").to_openai())
    assert "from ann" in told
    assert "from telegram" not in told
    assert [m.text() for m in nx.history("dm:telegram:42~merged")] == ["from telegram", "ok"]


def test_link_without_source_session_makes_alias_or_nothing(root: Path, home: Path) -> None:
    mine(home, ANN)
    nx = opened(root, home)
    assert link_principal(nx.ledger, nx.policies.read(), "telegram:42").kind == "nothing"
    said(nx, "dm:ann", "from ann")
    assert link_principal(nx.ledger, nx.policies.read(), "telegram:42").kind == "aliased"
    assert nx.ledger.resolve("dm:telegram:42") == "dm:ann"


def test_link_without_person_or_against_policy_is_rejected(root: Path, home: Path) -> None:
    mine(home, ANN)
    nx = opened(root, home)
    with pytest.raises(NotAllowed, match="assigns no person"):
        link_principal(nx.ledger, nx.policies.read(), "discord:7")
    with pytest.raises(NotAllowed, match="the policy assigns session 'dm:ann'"):
        link_principal(nx.ledger, nx.policies.read(), "telegram:42", "bob")
    said(nx, "dm:discord:7", "hello")
    assert link_principal(nx.ledger, nx.policies.read(), "discord:7", "bob").new == "dm:bob"


def test_overflow_retry_keeps_principal_and_tools(root: Path, home: Path) -> None:
    mine(home, ANN.replace('tools = ["*"]', 'categories = ["files"]'))
    nx = opened(root, home)
    given = [{**TOOLS[1], "category": "files"}, TOOLS[0]]
    sent: list[nexus.AssembledContext] = []

    def send(ctx: nexus.AssembledContext) -> Any:
        sent.append(ctx)
        if len(sent) == 1:
            raise ValueError("prompt is too long: 210000 tokens > 200000 maximum")
        return nexus.AgentResult((assistant("ok"),))

    for number in range(8):
        said(nx, "dm:ann", f"question {number} " * 300)
    nexus.call(nx, "and?", send, principal="telegram:42", tools=given, budget=8_000)
    ctx = nx.assemble("again", principal="telegram:42", tools=given, budget=8_000)
    from nexus.engine.overflow_recovery import recover

    retried = recover(nx, ctx, ValueError("prompt is too long: 210000 tokens > 200000 maximum"), send)
    for one in (*sent, retried.ctx):
        assert ([spec.name for spec in one.tools], one.session_label) == (["read_file"], "dm:ann")
        assert [tool.name for tool in one.provenance.denied_tools] == ["run_command"]


def test_toolset_can_be_defined_by_program(root: Path) -> None:
    nx = nexus.open(root, policy=Policy(toolsets={"look": Toolset(("read_*",))}))
    assert names(nx, toolset="look") == ["read_file"]
    with pytest.raises(NotAllowed, match="toolset 'lok' not found"):
        names(nx, toolset="lok")
