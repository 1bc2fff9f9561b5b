"""The TypeScript package with what comes from npm: its types for TypeScript, and its middleware in the AI SDK.

Installs into `.clients-ts` at the top of the repository, once (130 MB).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from filelock import FileLock

import nexus
from contracts.modules import ROOT
from nexus.server.client import Client
from nexus.testing.model_server import model_server, reply
from nexus.types.message import Text, Thinking, ToolResult
from server.running import process
from support.mirrored_body import text_of
from support.node import PACKAGE, install_package, run_node, run_npm

pytestmark = pytest.mark.slow

FOLDER = ROOT / ".clients-ts"
PAGE = ROOT / "docs" / "adapters" / "ai-sdk.md"
TOOLS = {"@types/json-schema": "7.0.15", "@types/node": "24.19.4", "typescript": "7.0.2"}
PACKAGES = {
    "6": {"ai": "6.0.326", "@ai-sdk/openai": "3.0.141", "zod": "4.1.8", **TOOLS},
    "7": {"ai": "7.0.173", "@ai-sdk/openai": "4.0.118", "zod": "4.1.8", **TOOLS},
}
"""The packages of npm for each version of the AI SDK that the middleware supports."""

SEEDS = 120

CONSUMER = """
import { openaiLike } from "./model.js";
import { generateText, wrapLanguageModel } from "ai";
import { Nexus, NexusError, type Agent, type Result, type StreamedEvent } from "nexus-context-engine";
import { nexusMiddleware } from "nexus-context-engine/ai-sdk";

const nexus = new Nexus({ token: "t", timeoutMs: 5 });
const agent: Agent = await nexus.createAgent({ systemPrompt: "x", ifExists: "continue", budget: 5 });
const sent: Result<"send"> = await agent.send({ content: "Hi", requestId: 7 }, { signal: AbortSignal.timeout(5) });
const text: string | undefined = sent.content;
for await (const event of agent.events({ lastEventId: "a.1" })) {
  const id: string = event.eventId;
  if (event.type === "token") console.log(event.text.length, id, event.agentId);
  if (event.type === "stream_end") console.log(event.usage?.cacheReadTokens);
}
const fitted = await agent.fit({ messages: [{ role: "tool", parts: [{ type: "tool_result", callId: "c", isError: true }] }] });
const body = await agent.mirror({ messages: [{ role: "user", some_key: 1 }] });
console.log(text, fitted.shown[0]?.item, body.body["messages"]);
const model = wrapLanguageModel({ model: openaiLike, middleware: nexusMiddleware(agent, { conversation: "c" }) });
await generateText({ model, prompt: "Hi" }).catch((error: unknown) => error instanceof NexusError && error.retryable);
// @ts-expect-error unknown params are errors
await agent.send({ content: "Hi", nonsense: 1 });
// @ts-expect-error names are in camelCase
await agent.send({ content: "Hi", request_id: "r" });
export type { StreamedEvent };
"""
MODEL = 'import type { LanguageModel, wrapLanguageModel } from "ai";\nexport declare const openaiLike: Parameters<typeof wrapLanguageModel>[0]["model"];\nexport type { LanguageModel };\n'


@pytest.fixture(params=[*PACKAGES])
def modules(request: pytest.FixtureRequest) -> Path:
    """Install the packages of a version from npm, and return their folder."""
    packages = PACKAGES[request.param]
    folder = FOLDER / f"ai-{request.param}"
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "installed.json"
    with FileLock(folder / "lock"):
        if not (stamp.is_file() and json.loads(stamp.read_text("utf-8")) == packages):
            (folder / "package.json").write_text(json.dumps({"type": "module", "dependencies": packages}), "utf-8")
            try:
                run_npm("install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error", folder=folder)
            except AssertionError as error:
                reason = f"packages not installed from npm: {str(error)[-300:]}"
                pytest.fail(reason, pytrace=False) if os.environ.get("CI") else pytest.skip(reason)
            stamp.write_text(json.dumps(packages), "utf-8")
    return folder / "node_modules"


def link_modules(modules: Path, folder: Path) -> None:
    """Let programs of a folder find the packages."""
    place = folder / "node_modules"
    place.mkdir(exist_ok=True)
    for package in modules.iterdir():
        if not package.name.startswith("."):
            (place / package.name).symlink_to(package, target_is_directory=True)


def compile_types(modules: Path, *arguments: str | Path, folder: Path) -> None:
    run_node(modules / "typescript" / "bin" / "tsc", *arguments, folder=folder)


def test_published_types_are_those_of_the_source(modules: Path, tmp_path: Path) -> None:
    shutil.copytree(PACKAGE / "src", tmp_path / "src", ignore=shutil.ignore_patterns("index.d.ts", "ai-sdk.d.ts"))
    for name in ("package.json", "tsconfig.json"):
        shutil.copy(PACKAGE / name, tmp_path)
    link_modules(modules, tmp_path)
    compile_types(modules, "-p", ".", folder=tmp_path)
    for name in ("index.d.ts", "ai-sdk.d.ts"):
        made = (tmp_path / "build" / name).read_text("utf-8")
        assert made == (PACKAGE / "src" / name).read_text("utf-8"), f"copy {name} from the output of tsc -p ."


@pytest.mark.parametrize("resolution", ["nodenext", "bundler"])
def test_typescript_program_with_the_packed_package_compiles(modules: Path, tmp_path: Path, resolution: str) -> None:
    install_package(tmp_path)
    link_modules(modules, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}', "utf-8")
    (tmp_path / "program.ts").write_text(CONSUMER, "utf-8")
    (tmp_path / "model.ts").write_text(MODEL, "utf-8")
    module = "nodenext" if resolution == "nodenext" else "esnext"
    options = ("--strict", "--noEmit", "--skipLibCheck", "--target", "es2022", "--module", module)
    compile_types(modules, *options, "--moduleResolution", resolution, "program.ts", folder=tmp_path)


def test_middleware_in_the_ai_sdk(modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "home"))
    install_package(tmp_path)
    link_modules(modules, tmp_path)
    shutil.copytree(PACKAGE / "test", tmp_path / "test")
    (tmp_path / "package.json").write_text('{"type": "module"}', "utf-8")
    result_file = tmp_path / "result.json"
    with process(tmp_path, "--model", "gpt-4o", "--rate", "100000") as server:
        env = {"NEXUS_URL": server.url, "NEXUS_TOKEN": server.token, "RESULT": str(result_file), "SEEDS": str(SEEDS)}
        run_node("--test", "--test-reporter=tap", tmp_path / "test" / "ai-sdk.test.js", env=env, folder=tmp_path)
        assert "shop" in [info.agent_id for info in Client(server.url, server.token).list_agents()]
        server.stop()
    result = json.loads(result_file.read_text("utf-8"))
    _check_recorded(tmp_path, result["session"], result["texts"])
    print(f"{result['calls']} calls, the largest of {result['largest']:,} tokens")


CHAT = """
const messages: ModelMessage[] = [];
for (const question of ["Which index?", "Why?", "Is there another one?"]) {
  messages.push({ role: "user", content: question });
  messages.push({ role: "assistant", content: await answer("7f3a", messages).text });
}
console.log(JSON.stringify(messages.map((message) => message.content)));
"""


def test_program_of_the_page_talks_to_a_provider(modules: Path, tmp_path: Path) -> None:
    install_package(tmp_path)
    link_modules(modules, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}', "utf-8")
    (block,) = re.findall(r"^```ts\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    program = block.replace("new Nexus({", "new Nexus({ url: process.env.NEXUS_URL!,") + CHAT
    (tmp_path / "program.ts").write_text(program, "utf-8")
    options = (
        "--strict",
        "--noEmit",
        "--skipLibCheck",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--types",
        "node",
    )
    compile_types(modules, *options, "program.ts", folder=tmp_path)
    with model_server(reply("A GIN index.")) as model, process(tmp_path, "--model", "gpt-4o") as server:
        env = {"NEXUS_URL": server.url, "NEXUS_TOKEN": server.token}
        provider = {"OPENAI_BASE_URL": model.openai_url, "OPENAI_API_KEY": "none"}
        printed = json.loads(run_node("program.ts", env={**env, **provider}, folder=tmp_path))
        (info,) = Client(server.url, server.token).list_agents()
        bodies = model.bodies
    assert printed[1::2] == ["A GIN index."] * 3
    assert info.agent_id == "shop"
    sent_texts = [[text_of(item["content"]) for item in body["input"]] for body in bodies]
    assert sent_texts == [printed[:1], printed[:3], printed[:5]]


def _check_recorded(folder: Path, session: str, texts: Sequence[str]) -> None:
    """Check that the ledger has the whole conversation, and that the commands show its calls."""
    with nexus.open(folder / "workspace") as nx:
        stored = [text for message in nx.history(session) for text in _texts(message.parts)]
        assert [text for text in stored if text in {*texts}] == list(texts)
    commands = (("explain", session, "20"), ("context", session), ("cache", "show", session), ("replay", session, "20"))
    for words in commands:
        command = [sys.executable, "-m", "nexus", *words, "-w", "workspace"]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert len(ran.stdout) > 300, words


def _texts(parts: Sequence[object]) -> list[str]:
    texts: list[str] = []
    for part in parts:
        if isinstance(part, (Text, Thinking)):
            texts.append(part.text)
        if isinstance(part, ToolResult):
            texts += [block.text for block in part.content if isinstance(block, Text)]
    return texts
