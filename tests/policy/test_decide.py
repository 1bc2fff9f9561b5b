"""What a call is granted: the decision as a pure function, its laws, and what a hostile caller tries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nexus.errors import BadSetting, NotAllowed
from nexus.policy import Default, Grant, Policy, Principal, RoleRule, Toolset, decide
from nexus.types.request import Event, Request
from nexus.types.settings import AgentRole
from support.errors import has_code

NAMES = ("read_file", "web_search", "web_fetch", "send_message", "reply", "spawn")
TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in NAMES]

HOUSE = Policy(
    "house",
    toolsets={"full": Toolset(("*",)), "look": Toolset(("read_file", "web_*"), deny=("web_fetch",))},
    principals={
        "imessage:+1555": Principal("ann", "manager", "full", permissions=("read", "write")),
        "telegram:42": Principal("ann", toolset="look"),
        "bot:night": Principal(role="worker", toolset="look", session="worker:night"),
    },
    roles={"worker": RoleRule(deny=("spawn",))},
    categories={"messaging": ("send_*", "reply")},
    default=Default("look", "unified", ("read",)),
)


def asked(principal: str = "", session: str | None = None, tools: Any = TOOLS, **more: Any) -> Request:
    return Request(Event(), "main" if session is None else session, chooses_session=session is None).with_arguments(
        {"principal": principal or None, "tools": tools, **more}
    )


def out(granted: Grant) -> dict[str, str]:
    return {one.name: one.reason for one in granted.denied_tools}


def test_all_tools_are_granted_without_policy() -> None:
    granted = decide((), asked("anybody", "s"))
    assert (granted.tools, granted.denied_tools, granted.session) == (tuple(sorted(NAMES)), (), "s")
    assert (granted.role, granted.toolset, granted.permissions, granted.capabilities) == ("unified", "", (), None)


def test_principal_gets_its_role_session_toolset_and_permissions() -> None:
    granted = decide(HOUSE, asked("imessage:+1555"))
    assert (granted.role, granted.session, granted.toolset) == ("manager", "dm:ann", "full")
    assert (granted.permissions, granted.person) == (("read", "write"), "ann")
    assert granted.tools == tuple(sorted(NAMES))


def test_principals_of_one_person_share_a_session() -> None:
    assert decide(HOUSE, asked("telegram:42")).session == decide(HOUSE, asked("imessage:+1555")).session == "dm:ann"


def test_default_fills_in_unset_principal_fields() -> None:
    granted = decide(HOUSE, asked("telegram:42"))
    assert (granted.role, granted.permissions) == ("unified", ("read",))


def test_unknown_principal_gets_default_and_separate_session() -> None:
    granted = decide(HOUSE, asked("discord:7"))
    assert (granted.toolset, granted.session, granted.tools) == ("look", "dm:discord:7", ("read_file", "web_search"))
    assert out(granted)["web_fetch"] == "toolset 'look' denies 'web_fetch'"
    assert out(granted)["spawn"] == "not in toolset 'look'"


def test_unknown_principal_gets_nothing_and_warning_without_default() -> None:
    granted = decide(replace(HOUSE, default=None), asked("discord:7", permissions=["read"]))
    assert (granted.tools, granted.permissions, granted.capabilities) == ((), (), ())
    assert set(out(granted).values()) == {"house does not define the principal and has no default"}
    assert "'discord:7' is not defined in house, which has no default: no tools" in granted.warnings[0].message


def test_call_without_principal_gets_nothing_without_default() -> None:
    assert decide(replace(HOUSE, default=None), asked()).tools == ()


def test_policy_without_principals_applies_to_everybody() -> None:
    policy = Policy(roles={"worker": RoleRule(deny=("web_*",))})
    assert decide(policy, asked("a", "worker:x", role="worker")).tools == (
        "read_file",
        "reply",
        "send_message",
        "spawn",
    )
    assert decide(policy, asked("a")).tools == tuple(sorted(NAMES))


def test_worker_gets_only_reply_of_messaging_tools() -> None:
    granted = decide(HOUSE, asked("imessage:+1555", "worker:x", role="worker"))
    assert granted.tools == ("read_file", "reply", "web_fetch", "web_search")
    assert out(granted)["spawn"] == "role worker is denied 'spawn'"
    assert "no messaging tool except" in out(granted)["send_message"]


def test_toolset_of_role_restricts_toolset_of_principal() -> None:
    policy = replace(HOUSE, roles={"worker": RoleRule("look")})
    granted = decide(policy, asked("imessage:+1555", "worker:x", role="worker"))
    assert (granted.toolset, granted.tools) == ("full & look", ("read_file", "web_search"))


def test_requested_toolset_only_restricts() -> None:
    assert decide(HOUSE, asked("imessage:+1555", toolset="look")).tools == ("read_file", "web_search")
    assert decide(HOUSE, asked("telegram:42", toolset="full")).tools == ("read_file", "web_search")


@pytest.mark.parametrize("name", ["nothing", "*", "../full", "Full", "full "])
def test_unknown_toolset_is_rejected(name: str) -> None:
    with pytest.raises(NotAllowed, match=r"toolset .* not found .toolsets of the policy: full, look"):
        decide(HOUSE, asked("imessage:+1555", toolset=name))


def test_toolset_without_policy_has_no_effect_and_warns() -> None:
    granted = decide((), asked(toolset="research"))
    assert granted.toolset == "research"
    assert "has no effect" in granted.warnings[0].message


def test_category_in_definition_applies_in_every_format() -> None:
    policy = Policy(toolsets={"t": Toolset(categories=("files",))}, default=Default("t"))
    said = {"category": "files"}
    tools: list[dict[str, Any]] = [
        {"name": "a", "input_schema": {}, **said},
        {"type": "function", "function": {"name": "b", "parameters": {}, **said}},
        {"type": "function", "function": {"name": "c", "parameters": {}}, "x-nexus": said},
        {"function_declarations": [{"name": "d", **said}, {"name": "e"}]},
        {"name": "f"},
    ]
    assert decide(policy, asked(tools=tools)).tools == ("a", "b", "c", "d")


def test_tool_with_roles_is_denied_to_other_roles() -> None:
    tools = [{"name": "spawn", "roles": ["manager", "unified"]}, {"name": "look", "x-nexus": {"roles": "manager"}}]
    granted = decide((), asked("", "worker:x", tools, role="worker"))
    assert out(granted) == {"spawn": "only for role manager, unified", "look": "only for role manager"}


def test_unmatched_patterns_give_one_warning_per_toolset() -> None:
    policy = Policy(toolsets={"t": Toolset(("read_flie", "web_*"), deny=("run_comand",))}, default=Default("t"))
    (warned,) = decide(policy, asked()).warnings
    assert warned.message == "patterns of toolset 't' match no given tool: read_flie, run_comand"
    assert decide(policy, asked(tools=[])).warnings == ()


def test_principal_names_are_compared_exactly() -> None:
    tools = [{"name": "Read_File"}, {"name": "read_file2"}, {"name": "xread_file"}]
    assert decide(HOUSE, asked("telegram:42", tools=tools)).tools == ()


@pytest.mark.parametrize("role", ["unified", "worker"])
def test_principal_with_worker_role_is_a_worker(role: AgentRole) -> None:
    assert decide(HOUSE, asked("bot:night", role=role)).role == "worker"


def test_worker_principal_cannot_request_manager_role() -> None:
    with pytest.raises(NotAllowed, match="role 'manager' not allowed: the policy allows 'worker'"):
        decide(HOUSE, asked("bot:night", role="manager"))


def test_requested_permissions_are_limited_by_policy() -> None:
    granted = decide(HOUSE, asked("telegram:42", permissions=["write", "read"]))
    assert granted.permissions == ("read",)
    assert granted.warnings[0].message == "permissions not granted: write"


@pytest.mark.parametrize("principal", ["discord:7", "ann", "telegram:42 ", "TELEGRAM:42", "telegram:*", "telegram:4?"])
def test_session_of_another_principal_is_rejected(principal: str) -> None:
    with pytest.raises((NotAllowed, BadSetting)):
        decide(HOUSE, asked(principal, "dm:ann"))


def test_principal_named_like_a_person_does_not_get_its_session() -> None:
    with pytest.raises(NotAllowed, match="'dm:ann' not allowed for 'ann': house assigns it to somebody else"):
        decide(HOUSE, asked("ann"))


def test_alias_of_another_principals_session_is_rejected() -> None:
    with pytest.raises(NotAllowed, match="'dm:ann' not allowed for 'discord:7'"):
        decide(HOUSE, asked("discord:7", "shortcut"), lambda label: (label, "dm:ann"))


def test_assigned_session_is_exclusive_for_any_label() -> None:
    policy = replace(HOUSE, principals={"a": Principal(toolset="full", session="main")})
    assert decide(policy, asked("a")).session == "main"
    with pytest.raises(NotAllowed):
        decide(policy, asked("b", "main"))


def test_group_and_free_labels_are_open_to_all_principals() -> None:
    assert decide(HOUSE, asked("discord:7", "group:ops")).session == "group:ops"
    assert decide(HOUSE, asked("discord:7", "project")).session == "project"


@pytest.mark.parametrize("principal", ["a\nb", "a\x00", "x" * 5_000, " ", "a\u202eb", "\ud800"])
def test_invalid_principal_raises_short_bad_session_key(principal: str) -> None:
    with pytest.raises(BadSetting, check=has_code("bad_session_key")) as caught:
        decide(HOUSE, asked(principal))
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("principal", ["../../etc/passwd", "*", "[a-z]", "'; DROP TABLE session", "local/dm:ann"])
def test_principal_is_neither_path_nor_pattern(principal: str) -> None:
    assert decide(HOUSE, asked(principal)).session == f"dm:{principal}"


# two policies -------------------------------------------------------------------------------------------------------

GREEDY = Policy(
    "workspace",
    toolsets={"look": Toolset(("*",)), "all": Toolset(("*",))},
    principals={
        "discord:7": Principal("ann", "manager", "all", "dm:ann", ("read", "write", "root")),
        "telegram:42": Principal("mallory", "manager", "all", permissions=("root",)),
    },
    categories={"files": ("*",)},
    default=Default("all", "manager", ("root",)),
)


def test_workspace_policy_cannot_assign_another_persons_session() -> None:
    assert decide((HOUSE, GREEDY), asked("discord:7")).session == "dm:discord:7"
    with pytest.raises(NotAllowed, match="house assigns it to somebody else"):
        decide((HOUSE, GREEDY), asked("discord:7", "dm:ann"))


def test_workspace_policy_cannot_grant_more_than_user_policy() -> None:
    granted = decide((HOUSE, GREEDY), asked("telegram:42"))
    assert (granted.role, granted.person, granted.session) == ("unified", "ann", "dm:ann")
    assert (granted.tools, granted.permissions) == (("read_file", "web_search"), ())
    assert decide((replace(HOUSE, default=None), GREEDY), asked("slack:1")).tools == ()


def test_workspace_principals_are_ignored_when_user_policy_is_closed() -> None:
    granted = decide((replace(HOUSE, default=None), replace(GREEDY, principals={
        "slack:1": Principal("boss", "manager", "all", "dm:boss"),
    })), asked("slack:1"))  # fmt: skip
    assert (granted.session, granted.person, granted.tools) == ("dm:slack:1", "", ())


def test_workspace_policy_can_restrict() -> None:
    narrow = Policy("workspace", roles={"manager": RoleRule(deny=("spawn",))})
    granted = decide((HOUSE, narrow), asked("imessage:+1555"))
    assert "spawn" not in granted.tools
    assert set(granted.tools) == set(NAMES) - {"spawn"}


def test_workspace_categories_do_not_extend_user_toolsets() -> None:
    mine = Policy("user", toolsets={"t": Toolset(categories=("files",))}, default=Default("t"))
    theirs = Policy("workspace", categories={"files": ("*",)}, default=Default("t"))
    assert decide((mine, theirs), asked()).tools == ()


# laws ---------------------------------------------------------------------------------------------------------------

PATTERNS = st.lists(st.sampled_from([*NAMES, "*", "web_*", "?e*", "nothing"]), max_size=3).map(tuple)
TOOLSETS = st.builds(Toolset, PATTERNS, PATTERNS, st.just(()), st.none() | PATTERNS)
ROLE = st.sampled_from(["manager", "worker", "unified"])
WORDS = st.none() | st.lists(st.sampled_from(["read", "write", "root"]), max_size=3).map(tuple)
PRINCIPALS = st.builds(
    Principal, st.sampled_from(["", "ann", "bob"]), st.none() | ROLE, st.sampled_from(["a", "b"]),
    st.sampled_from(["", "main"]), WORDS,
)  # fmt: skip
POLICIES = st.builds(
    Policy,
    st.just("one"),
    st.fixed_dictionaries({"a": TOOLSETS, "b": TOOLSETS}),
    st.dictionaries(st.sampled_from(["p", "q", "r"]), PRINCIPALS, max_size=3),
    st.dictionaries(ROLE, st.builds(RoleRule, st.sampled_from(["", "a"]), PATTERNS), max_size=2),
    st.dictionaries(st.sampled_from(["messaging", "x"]), PATTERNS, max_size=2),
    st.none() | st.builds(Default, st.sampled_from(["a", "b"]), st.none() | ROLE, WORDS),
)


def decisions(policies: tuple[Policy, ...], request: Request) -> Iterator[Grant]:
    """The decision, if there is one: a refusal grants nothing."""
    try:
        yield decide(policies, request)
    except (NotAllowed, BadSetting):
        return


@settings(max_examples=50)
@given(POLICIES, POLICIES, st.sampled_from(["p", "q", "r", "ann", ""]), ROLE, st.sampled_from([None, "worker:x", "g"]))
def test_law_second_policy_never_adds_tool_permission_or_role(
    mine: Policy, theirs: Policy, principal: str, role: AgentRole, session: str | None
) -> None:
    request = asked(principal, session, role=role)
    for both in decisions((mine, theirs), request):
        silent = not mine.principals and mine.default is None
        settings = replace(request.settings, role=both.role, principal="" if silent else principal)
        told = replace(request, session=both.session, settings=settings, chooses_session=False)
        alone = decide(mine, told)
        assert both.role == alone.role
        assert set(both.tools) <= set(alone.tools)
        assert silent or set(both.permissions) <= set(alone.permissions)
        assert silent or both.person == alone.person


@settings(max_examples=50)
@given(POLICIES, st.sampled_from(["p", "q", "z", ""]), ROLE, st.sampled_from([None, "worker:x", "main"]))
def test_law_decision_is_idempotent(policy: Policy, principal: str, role: AgentRole, session: str | None) -> None:
    request = asked(principal, session, role=role)
    for first in decisions((policy,), request):
        settings = replace(request.settings, role=first.role, toolset=first.toolset, permissions=first.permissions)
        granted = replace(request, session=first.session, settings=settings, chooses_session=False)
        again = decide(policy, granted)
        assert (again.role, again.session, again.toolset) == (first.role, first.session, first.toolset)
        assert (again.tools, again.capabilities) == (first.tools, first.capabilities)


@settings(max_examples=50)
@given(POLICIES, st.sampled_from(["p", "z"]), st.permutations(TOOLS))
def test_law_every_tool_is_granted_or_denied_with_reason_in_stable_order(
    policy: Policy, principal: str, tools: list[dict[str, Any]]
) -> None:
    for granted in decisions((policy,), asked(principal, "group:g", tools, role="manager")):
        assert sorted([*granted.tools, *out(granted)]) == sorted(NAMES)
        assert all(out(granted).values())
        assert granted.tools == tuple(sorted(granted.tools))
        assert [one.name for one in granted.denied_tools] == sorted(out(granted))
