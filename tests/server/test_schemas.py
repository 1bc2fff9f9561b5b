"""The schemas of all methods, the TypeScript types made from them, and the JavaScript program of the docs."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from jsonschema import Draft202012Validator

from contracts.modules import ROOT
from nexus.server import client, forms
from nexus.server.methods import METHODS
from nexus.server.openrpc import openrpc, schemas
from nexus.testing.model_server import reply
from nexus.types.settings import Settings
from server.running import TOKEN, running
from support.node import install_package, run_node

sys.path.insert(0, str(ROOT / "scripts"))
import build_server_types

JS_LINES = 20


def javascript() -> str:
    page = (ROOT / "docs" / "server.md").read_text("utf-8")
    (program,) = re.findall(r"^```js\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    return program


def test_every_method_has_a_schema_of_params_and_result() -> None:
    for name, method in METHODS.items():
        assert schemas()[method.params.__name__]["additionalProperties"] is False, name
        assert method.result.__name__ in schemas(), name
        assert method.summary.endswith("."), name
    for schema in schemas().values():
        Draft202012Validator.check_schema(schema)


def test_every_reference_of_the_document_leads_to_a_schema() -> None:
    document = openrpc()
    for reference in re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(document)):
        assert reference in document["components"]["schemas"]


def test_typescript_types_are_up_to_date() -> None:
    assert build_server_types.FILE.read_text("utf-8") == build_server_types.text(), (
        "run: python scripts/build_server_types.py"
    )


def test_client_has_every_method() -> None:
    for name, method in METHODS.items():
        kind = client.Client if method.scope == "server" else client.AgentClient
        assert callable(getattr(kind, name)), name


def test_docs_name_every_method_and_param() -> None:
    page = (ROOT / "docs" / "server.md").read_text("utf-8")
    for name, method in METHODS.items():
        (row,) = re.findall(rf"^\| `{name}` \|(.*)$", page, re.MULTILINE)
        documented = set(re.findall(r"`(\w+)`", row))
        if "every other [setting](library.md#settings)" in row:
            documented.update(Settings.__struct_fields__)
        assert {*schemas()[method.params.__name__].get("properties", {})} <= documented, name


def test_values_agree_with_their_schemas(tmp_path: Path) -> None:
    calls = [
        ("create_agent", {"agent_id": "a", "system_prompt": "Be terse."}, "/rpc"),
        ("send", {"content": "Hi"}, "/agent/a"),
        ("get_tokens", {}, "/agent/a"),
        ("get_context", {}, "/agent/a"),
        ("get_messages", {}, "/agent/a"),
        ("explain", {}, "/agent/a"),
        ("compact", {}, "/agent/a"),
        ("cancel", {"request_id": 1}, "/agent/a"),
        ("begin", {"content": "Hi"}, "/agent/a"),
        ("assemble", {}, "/agent/a"),
        ("record", {"reply": "Hello."}, "/agent/a"),
        ("mirror", {"messages": [{"role": "user", "content": "Hi"}]}, "/agent/a"),
        ("fit", {"messages": [{"role": "user", "parts": [{"type": "text", "text": "Hi"}]}]}, "/agent/a"),
        ("fork", {"new_agent_id": "b"}, "/agent/a"),
        ("list_agents", {}, "/rpc"),
        ("shutdown", {}, "/agent/b"),
        ("destroy_agent", {"agent_id": "a"}, "/rpc"),
    ]
    with running(tmp_path, reply("Hello.")) as server:
        for name, params, path in calls:
            result, method = server.rpc(name, params, path), METHODS[name]
            for value, kind in ((params, method.params), (result, method.result)):
                schema = {"$ref": f"#/components/schemas/{kind.__name__}", "components": {"schemas": schemas()}}
                errors = [error.message for error in Draft202012Validator(schema).iter_errors(value)]
                assert errors == [], name


def test_names_in_camel_case_are_unique() -> None:
    assert forms.camel("agent_id") == "agentId"
    for schema in schemas().values():
        names = list(schema.get("properties", {}))
        assert len({forms.camel(name) for name in names}) == len(names)


def test_javascript_program_of_the_docs_runs(tmp_path: Path) -> None:
    install_package(tmp_path)
    program = tmp_path / "client.mjs"
    program.write_text(javascript(), "utf-8")
    with running(tmp_path, reply("A GIN index.")) as server:
        printed = run_node(program, env={"NEXUS_URL": server.url, "NEXUS_TOKEN": TOKEN}, folder=tmp_path)
    assert printed == "A GIN index.\nmail-17: A GIN index.\n"


def test_javascript_program_of_the_docs_is_short() -> None:
    assert len(javascript().splitlines()) <= JS_LINES
