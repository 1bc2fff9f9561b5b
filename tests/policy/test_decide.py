"""What a call is granted: the decision as a pure function, its laws, and what a hostile caller tries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nexus.assembly.request_args import build_request
from nexus.errors import BadSessionKey, NotAllowed
from nexus.policy import Default, Grant, Policy, Principal, RoleRule, Toolset, decide
from nexus.types.request import AgentRole, Event, Identity, Request

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
    return build_request(Event(), session, principal=principal, tools=tools, **more)


def out(granted: Grant) -> dict[str, str]:
    return {one.name: one.why for one in granted.denied_tools}


def test_without_a_policy_nothing_is_taken_away() -> None:
    granted = decide((), asked("anybody", "s"))
    assert (granted.tools, granted.denied_tools, granted.session) == (tuple(sorted(NAMES)), (), "s")
    assert (granted.role, granted.toolset, granted.permissions, granted.capabilities) == ("unified", "", (), None)


def test_a_named_principal_gets_its_own_role_session_toolset_and_permissions() -> None:
    granted = decide(HOUSE, asked("imessage:+1555"))
    assert (granted.role, granted.session, granted.toolset) == ("manager", "dm:ann", "full")
    assert (granted.permissions, granted.person) == (("read", "write"), "ann")
    assert granted.tools == tuple(sorted(NAMES))


def test_principals_of_one_person_share_a_session() -> None:
    assert decide(HOUSE, asked("telegram:42")).session == decide(HOUSE, asked("imessage:+1555")).session == "dm:ann"


def test_what_a_principal_does_not_say_comes_from_the_default() -> None:
    granted = decide(HOUSE, asked("telegram:42"))
    assert (granted.role, granted.permissions) == ("unified", ("read",))


def test_who_is_not_named_gets_the_default_and_a_session_of_their_own() -> None:
    granted = decide(HOUSE, asked("discord:7"))
    assert (granted.toolset, granted.session, granted.tools) == ("look", "dm:discord:7", ("read_file", "web_search"))
    assert out(granted)["web_fetch"] == "toolset 'look' denies 'web_fetch'"
    assert out(granted)["spawn"] == "not in toolset 'look'"


def test_without_a_default_who_is_not_named_gets_nothing_and_the_warning_says_so() -> None:
    granted = decide(replace(HOUSE, default=None), asked("discord:7", permissions=["read"]))
    assert (granted.tools, granted.permissions, granted.capabilities) == ((), (), ())
    assert set(out(granted).values()) == {"house does not name who speaks, and has no default"}
    assert "does not name 'discord:7' and has no default: no tools" in granted.warnings[0].message


def test_a_call_that_names_nobody_gets_nothing_either_where_only_named_ones_are_admitted() -> None:
    assert decide(replace(HOUSE, default=None), asked()).tools == ()


def test_a_policy_that_names_nobody_binds_everybody_alike() -> None:
    policy = Policy(roles={"worker": RoleRule(deny=("web_*",))})
    assert decide(policy, asked("a", "worker:x", role="worker")).tools == (
        "read_file",
        "reply",
        "send_message",
        "spawn",
    )
    assert decide(policy, asked("a")).tools == tuple(sorted(NAMES))


def test_a_worker_has_of_messaging_tools_the_reply_alone_by_the_policys_categories() -> None:
    granted = decide(HOUSE, asked("imessage:+1555", "worker:x", role="worker"))
    assert granted.tools == ("read_file", "reply", "web_fetch", "web_search")
    assert out(granted)["spawn"] == "role worker is denied 'spawn'"
    assert "its manager only" in out(granted)["send_message"]


def test_the_toolset_of_a_role_narrows_that_of_the_principal() -> None:
    policy = replace(HOUSE, roles={"worker": RoleRule("look")})
    granted = decide(policy, asked("imessage:+1555", "worker:x", role="worker"))
    assert (granted.toolset, granted.tools) == ("full & look", ("read_file", "web_search"))


def test_a_toolset_that_is_asked_for_narrows_and_never_widens() -> None:
    assert decide(HOUSE, asked("imessage:+1555", toolset="look")).tools == ("read_file", "web_search")
    assert decide(HOUSE, asked("telegram:42", toolset="full")).tools == ("read_file", "web_search")


@pytest.mark.parametrize("name", ["nothing", "*", "../full", "Full", "full "])
def test_a_toolset_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(NotAllowed, match=r"there is no toolset .*; the policy has: full, look"):
        decide(HOUSE, asked("imessage:+1555", toolset=name))


def test_without_a_policy_a_toolset_is_only_a_name_and_the_warning_says_so() -> None:
    granted = decide((), asked(toolset="research"))
    assert granted.toolset == "research"
    assert "only a name" in granted.warnings[0].message


def test_categories_of_definitions_count_in_every_form() -> None:
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


def test_a_tool_for_some_roles_is_out_for_the_others() -> None:
    tools = [{"name": "spawn", "roles": ["manager", "unified"]}, {"name": "look", "x-nexus": {"roles": "manager"}}]
    granted = decide((), asked("", "worker:x", tools, role="worker"))
    assert out(granted) == {"spawn": "only for role manager, unified", "look": "only for role manager"}


def test_patterns_that_match_nothing_that_is_given_are_one_warning_for_a_toolset() -> None:
    policy = Policy(toolsets={"t": Toolset(("read_flie", "web_*"), deny=("run_comand",))}, default=Default("t"))
    (warned,) = decide(policy, asked()).warnings
    assert warned.message == "of toolset 't' nothing that is given matches read_flie, run_comand"
    assert decide(policy, asked(tools=[])).warnings == ()


def test_names_are_compared_exactly() -> None:
    tools = [{"name": "Read_File"}, {"name": "read_file2"}, {"name": "xread_file"}]
    assert decide(HOUSE, asked("telegram:42", tools=tools)).tools == ()


@pytest.mark.parametrize("role", ["unified", "worker"])
def test_a_principal_that_may_only_be_a_worker_is_one(role: AgentRole) -> None:
    assert decide(HOUSE, asked("bot:night", role=role)).role == "worker"


def test_a_principal_that_may_only_be_a_worker_cannot_ask_to_manage() -> None:
    with pytest.raises(NotAllowed, match="the policy allows role worker, not manager"):
        decide(HOUSE, asked("bot:night", role="manager"))


def test_permissions_that_are_asked_for_are_granted_as_far_as_the_policy_goes() -> None:
    granted = decide(HOUSE, asked("telegram:42", permissions=["write", "read"]))
    assert granted.permissions == ("read",)
    assert granted.warnings[0].message == "not granted: write"


@pytest.mark.parametrize("principal", ["discord:7", "ann", "telegram:42 ", "TELEGRAM:42", "telegram:*", "telegram:4?"])
def test_somebody_elses_session_is_refused_whoever_asks(principal: str) -> None:
    with pytest.raises((NotAllowed, BadSessionKey)):
        decide(HOUSE, asked(principal, "dm:ann"))


def test_a_stranger_who_is_called_like_a_person_does_not_get_that_persons_session() -> None:
    with pytest.raises(NotAllowed, match="'dm:ann' is not for 'ann': house gives it to somebody else"):
        decide(HOUSE, asked("ann"))


def test_an_alias_does_not_lead_around_that() -> None:
    with pytest.raises(NotAllowed, match="'dm:ann' is not for 'discord:7'"):
        decide(HOUSE, asked("discord:7", "shortcut"), {"shortcut": "dm:ann"}.get)  # type: ignore[arg-type]


def test_a_session_that_the_policy_gives_somebody_is_theirs_whatever_its_label() -> None:
    policy = replace(HOUSE, principals={"a": Principal(toolset="full", session="main")})
    assert decide(policy, asked("a")).session == "main"
    with pytest.raises(NotAllowed):
        decide(policy, asked("b", "main"))


def test_groups_and_free_labels_are_open_to_all_that_the_program_lets_in() -> None:
    assert decide(HOUSE, asked("discord:7", "group:ops")).session == "group:ops"
    assert decide(HOUSE, asked("discord:7", "project")).session == "project"


@pytest.mark.parametrize("principal", ["a\nb", "a\x00", "x" * 5_000, " ", "a\u202eb", "\ud800"])
def test_a_principal_that_can_be_no_session_is_a_typed_error_with_a_short_text(principal: str) -> None:
    with pytest.raises(BadSessionKey) as caught:
        decide(HOUSE, asked(principal))
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("principal", ["../../etc/passwd", "*", "[a-z]", "'; DROP TABLE session", "local/dm:ann"])
def test_a_principal_is_a_name_and_neither_path_nor_pattern(principal: str) -> None:
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


def test_a_workspaces_policy_cannot_give_a_stranger_a_persons_session() -> None:
    assert decide((HOUSE, GREEDY), asked("discord:7")).session == "dm:discord:7"
    with pytest.raises(NotAllowed, match="house gives it to somebody else"):
        decide((HOUSE, GREEDY), asked("discord:7", "dm:ann"))


def test_a_workspaces_policy_cannot_grant_more_than_the_users() -> None:
    granted = decide((HOUSE, GREEDY), asked("telegram:42"))
    assert (granted.role, granted.person, granted.session) == ("unified", "ann", "dm:ann")
    assert (granted.tools, granted.permissions) == (("read_file", "web_search"), ())
    assert decide((replace(HOUSE, default=None), GREEDY), asked("slack:1")).tools == ()


def test_a_workspaces_word_on_who_somebody_is_does_not_count_where_the_user_admits_nobody_else() -> None:
    granted = decide((replace(HOUSE, default=None), replace(GREEDY, principals={
        "slack:1": Principal("boss", "manager", "all", "dm:boss"),
    })), asked("slack:1"))  # fmt: skip
    assert (granted.session, granted.person, granted.tools) == ("dm:slack:1", "", ())


def test_a_workspaces_policy_may_take_away() -> None:
    narrow = Policy("workspace", roles={"manager": RoleRule(deny=("spawn",))})
    granted = decide((HOUSE, narrow), asked("imessage:+1555"))
    assert "spawn" not in granted.tools
    assert set(granted.tools) == set(NAMES) - {"spawn"}


def test_a_workspaces_categories_do_not_widen_the_users_toolsets() -> None:
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
    except (NotAllowed, BadSessionKey):
        return


@settings(max_examples=50)
@given(POLICIES, POLICIES, st.sampled_from(["p", "q", "r", "ann", ""]), ROLE, st.sampled_from([None, "worker:x", "g"]))
def test_law_a_second_policy_never_adds_a_tool_a_permission_or_a_role(
    mine: Policy, theirs: Policy, principal: str, role: AgentRole, session: str | None
) -> None:
    request = asked(principal, session, role=role)
    for both in decisions((mine, theirs), request):
        silent = not mine.principals and mine.default is None
        told = replace(request.routing, session=both.session, role=both.role, own=False)
        alone = decide(mine, replace(request, routing=told, identity=Identity("" if silent else principal)))
        assert both.role == alone.role
        assert set(both.tools) <= set(alone.tools)
        assert silent or set(both.permissions) <= set(alone.permissions)
        assert silent or both.person == alone.person


@settings(max_examples=50)
@given(POLICIES, st.sampled_from(["p", "q", "z", ""]), ROLE, st.sampled_from([None, "worker:x", "main"]))
def test_law_a_decision_is_the_same_again_for_what_it_granted(
    policy: Policy, principal: str, role: AgentRole, session: str | None
) -> None:
    request = asked(principal, session, role=role)
    for first in decisions((policy,), request):
        routing = replace(request.routing, session=first.session, role=first.role, own=False)
        permissions = replace(request.permissions, toolset=first.toolset, granted=first.permissions)
        again = decide(policy, replace(request, routing=routing, permissions=permissions))
        assert (again.role, again.session, again.toolset) == (first.role, first.session, first.toolset)
        assert (again.tools, again.capabilities) == (first.tools, first.capabilities)


@settings(max_examples=50)
@given(POLICIES, st.sampled_from(["p", "z"]), st.permutations(TOOLS))
def test_law_every_tool_is_in_or_out_with_a_reason_in_a_stable_order(
    policy: Policy, principal: str, tools: list[dict[str, Any]]
) -> None:
    for granted in decisions((policy,), asked(principal, "group:g", tools, role="manager")):
        assert sorted([*granted.tools, *out(granted)]) == sorted(NAMES)
        assert all(out(granted).values())
        assert granted.tools == tuple(sorted(granted.tools))
        assert [one.name for one in granted.denied_tools] == sorted(out(granted))
