"""Policy files: what is read, and what is refused with the key that is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.errors import BadConfig
from nexus.policy import Default, Policy, Principal, RoleRule, Toolset
from nexus.policy.parse import merge_policies, parse_policy
from support.errors import has_code

WHOLE = """
[toolsets.full]
tools = ["read_file", "web_*"]
deny = ["web_fetch"]
categories = ["files"]
capabilities = ["chat-read"]

[principals."imessage:+1555"]
person = "ann"
role = "manager"
toolset = "full"
session = "dm:ann"
permissions = ["read"]

[roles.worker]
toolset = "full"
deny = ["spawn"]

[categories]
messaging = ["send_*"]

[default]
toolset = "full"
"""


def test_parse_reads_all_tables() -> None:
    assert parse_policy(WHOLE, "file") == Policy(
        "file",
        {"full": Toolset(("read_file", "web_*"), ("web_fetch",), ("files",), ("chat-read",))},
        {"imessage:+1555": Principal("ann", "manager", "full", "dm:ann", ("read",))},
        {"worker": RoleRule("full", ("spawn",))},
        {"messaging": ("send_*",)},
        Default("full"),
    )


def test_empty_file_is_an_empty_policy() -> None:
    assert parse_policy("", "file") == Policy("file")


WRONG = [
    ("[toolset.full]", "toolset", "one of the tables toolsets, principals, roles, categories, default"),
    ("toolsets = 1", "toolsets", "a table, [toolsets.NAME], not a number"),
    ("[toolsets]\nfull = '*'", "toolsets.full", "a table with tools, deny, categories, capabilities, not text"),
    ("[toolsets.full]\ntools = '*'", "toolsets.full.tools", "`array`, got `str`"),
    ("[toolsets.full]\ntools = [1]", "toolsets.full.tools[0]", "`str`, got `int`"),
    ("[toolsets.full]\ntool = ['a']", "toolsets.full.tool", "one of tools, deny, categories, capabilities"),
    ("[toolsets.full]\ntools = ['a b']", "toolsets.full.tools", "not 'a b'"),
    ("[toolsets.full]\ntools = ['[a-z]*']", "toolsets.full.tools", "not '[a-z]*'"),
    ("[toolsets.full]\ndeny = ['']", "toolsets.full.deny", "not ''"),
    ("[toolsets.'a & b']", 'toolsets."a & b"', "a name of letters, digits, `_`, `.` and `-`, at most 64"),
    ("[principals.'a']\nrole = 'boss'\ntoolset='x'", "principals.a.role", "invalid enum value 'boss'"),
    ("[principals.'a*']\ntoolset='x'", 'principals."a*"', "patterns are not supported"),
    ("[principals.a]", "principals.a.toolset", "the name of a toolset (required without [default])"),
    ('[principals."a\\nb"]\ntoolset="x"', 'principals."a\\nb"', "without control characters"),
    ("[principals.a]\ntoolset='x'\nsession='dm:'", "principals.a.session", "is empty"),
    ("[principals.a]\ntoolset='x'\nrole='worker'\nsession='dm:a'", "principals.a.session", "not admitted in session"),
    ('[principals.a]\ntoolset="x"\nperson="a\\nb"', "principals.a.person", "control characters"),
    ('[principals.a]\ntoolset="x"\npermissions=["a\\n# Rules"]', "principals.a.permissions", "names on one line"),
    ("[roles.boss]", "roles.boss", "one of the roles manager, worker, unified"),
    ("[categories]\nx = 'send_*'", "categories.x", "a list of tool names, not text"),
    ("[categories]\nx = ['a', 1]", "categories.x", "a list of tool names with text only"),
    ('[principals.a]\ntoolset="x"\nsession="dm:b"\nperson="a\\nb"', "principals.a.person", "control characters"),
    ("[default]\nrole='worker'", "default", "missing required field `toolset`"),
    ("default = true", "default", "a table with toolset, role, permissions, not a truth value"),
    ("[toolsets", "", "TOML ("),
    ("a = " + "[" * 5_000, "", "TOML ("),
]


@pytest.mark.parametrize(("text", "key", "expected"), WRONG)
def test_invalid_value_error_names_file_key_and_expectation(text: str, key: str, expected: str) -> None:
    with pytest.raises(BadConfig, check=has_code("bad_policy")) as caught:
        parse_policy(text, "policy.toml")
    assert (caught.value.file, caught.value.key) == ("policy.toml", key)
    assert expected.lower() in caught.value.expected.lower()
    assert "no context is made" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[principals.a]\ntoolset = 'ful'", "principals.a.toolset"),
        ("[roles.worker]\ntoolset = 'ful'", "roles.worker.toolset"),
        ("[default]\ntoolset = 'ful'", "default.toolset"),
    ],
)
def test_reference_to_unknown_toolset_is_an_error(text: str, key: str) -> None:
    policy = parse_policy(f"[toolsets.full]\n{text}", "file")
    with pytest.raises(BadConfig, match="one of the toolsets full, not 'ful'", check=has_code("bad_policy")) as caught:
        merge_policies([policy])
    assert caught.value.key == key


def test_later_policy_may_use_toolsets_of_earlier_one_only() -> None:
    mine, theirs = parse_policy("[toolsets.look]", "user"), parse_policy("[default]\ntoolset = 'look'", "workspace")
    assert merge_policies([mine, theirs]) == (mine, theirs)
    with pytest.raises(BadConfig, check=has_code("bad_policy")):
        merge_policies([theirs, mine])


@given(st.text(max_size=60))
def test_any_text_parses_or_raises_bad_policy(text: str) -> None:
    try:
        assert isinstance(parse_policy(text, "file"), Policy)
    except BadConfig as error:
        assert str(error).startswith("file")
