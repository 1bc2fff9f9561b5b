"""The TypeScript package against a real server, with Node.js alone. Its types are checked in test_typescript_npm.py."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from threading import Event

from nexus.testing.model_server import ModelRequest, Response, hang, model_server, reply
from server.running import TOKEN, process, running
from support.node import BIN, PACKAGE, install_package, node_environment, run_node

TESTS = PACKAGE / "test"
OTHER_TOKEN = "token-of-another-tenant"
SOURCES = ("ai-sdk-messages.js", "ai-sdk.d.ts", "ai-sdk.js", "index.d.ts", "index.js", "server.d.ts")
MIDDLEWARE_LINES = 120


def test_client(tmp_path: Path) -> None:
    with running(tmp_path, reply("A GIN index."), tokens={TOKEN: "local", OTHER_TOKEN: "other"}) as server:
        env = {"NEXUS_URL": server.url, "NEXUS_TOKEN": TOKEN, "OTHER_TOKEN": OTHER_TOKEN}
        run_node("--test", "--test-reporter=tap", TESTS / "client.test.js", env=env)


def test_stream_and_request_outlive_a_killed_server(tmp_path: Path) -> None:
    called = Event()

    def first_step(request: ModelRequest) -> Response:
        called.set()
        return hang()(request)

    with model_server(first_step, reply("A GIN index.")) as model:
        options = ("--base-url", model.openai_url, "--model", "gpt-4o")
        with process(tmp_path, *options) as first:
            port = first.url.rpartition(":")[2]
            program = subprocess.Popen(
                [str(BIN / "node"), str(TESTS / "restart.js")],
                env=node_environment({"NEXUS_URL": first.url, "NEXUS_TOKEN": first.token}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert called.wait(60)
        with process(tmp_path, *options, "--port", port):
            printed, errors = program.communicate("back\n", timeout=120)
    assert program.returncode == 0, errors
    result = json.loads(printed)
    assert result["failure"] == ["connection", True]
    assert "gap" in result["types"] and result["types"][-1] == "stream_end"
    assert result["answer"] == "A GIN index."


def test_packed_package_has_its_entry_points_and_needs_nothing(tmp_path: Path) -> None:
    place = install_package(tmp_path)
    names = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    assert names == ["LICENSE", "README.md", "package.json", *(f"src/{name}" for name in SOURCES)]
    description = json.loads((place / "package.json").read_text("utf-8"))
    assert not {"dependencies", "scripts", "bin"} & description.keys()
    program = tmp_path / "program.mjs"
    imports = (
        'import { Nexus } from "nexus-context-engine";\nimport { nexusMiddleware } from "nexus-context-engine/ai-sdk";'
    )
    program.write_text(f"{imports}\nconsole.log(typeof Nexus, typeof nexusMiddleware);\n", "utf-8")
    assert run_node(program, folder=tmp_path) == "function function\n"


def test_package_uses_nothing_that_browsers_lack() -> None:
    for path in (PACKAGE / "src").glob("*.js"):
        text = path.read_text("utf-8")
        modules = set(re.findall(r'^import .*"(.+)";', text, re.MULTILINE))
        assert all(module.startswith("./") for module in modules), path.name
        assert not re.search(r"\b(Buffer|process|require|global)\b\.?", _without_comments(text)), path.name


def test_middleware_is_short() -> None:
    assert len((PACKAGE / "src" / "ai-sdk.js").read_text("utf-8").splitlines()) <= MIDDLEWARE_LINES


def _without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|//.*", "", text, flags=re.DOTALL)
