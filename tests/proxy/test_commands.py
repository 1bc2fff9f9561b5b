"""`nexus proxy` and `nexus wrap` as a user runs them: real processes, one home folder, a client on the official SDK."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from nexus.testing.model_server import ModelServer, model_server, reply

NEXUS = [sys.executable, "-m", "nexus"]

CLIENT = """
import anthropic
client = anthropic.Anthropic(api_key="key-of-the-user")
with client.messages.stream(model="claude-sonnet-4-5", max_tokens=50, messages=[{"role": "user", "content": "Hi."}]) as s:
    print(s.get_final_text())
"""


def environment(home: Path, **variables: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(home), "LANG": "C.UTF-8", **variables}


def nexus(home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NEXUS, *words],
        env=environment(home, **variables),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=home,
        check=False,
    )


@contextmanager
def proxy_process(home: Path, provider: ModelServer, *words: str) -> Iterator[dict[str, Any]]:
    command = [*NEXUS, "proxy", "--port", "0", "--upstream", provider.anthropic_url, "--json", *words]
    with subprocess.Popen(
        command, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout is not None
            lines: list[str] = []
            while not lines or not lines[-1].strip().endswith("}"):
                line = running.stdout.readline()
                assert line, running.stderr.read() if running.stderr else ""
                lines.append(line)
            yield json.loads("".join(lines))
            running.send_signal(signal.SIGTERM)
            assert running.wait(30) == 0
        finally:
            running.kill()


def test_proxy_runs_shows_its_state_and_explains_a_call(tmp_path: Path) -> None:
    with model_server(reply("Hello to you.")) as provider, proxy_process(tmp_path, provider) as started:
        answer = httpx.post(
            f"{started['url']}/v1/messages",
            json={"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi."}]},
            trust_env=False,
        )
        call_id = answer.headers["x-nexus-call"]
        (state,) = json.loads(nexus(tmp_path, "proxy", "status", "--json").stdout)
        text = nexus(tmp_path, "proxy", "status").stdout
        off = nexus(tmp_path, "proxy", "off")
        assert httpx.get(f"{started['url']}/nexus/health", trust_env=False).json()["mode"] == "off"
        on = nexus(tmp_path, "proxy", "on")
    assert on.stdout == f"{started['url']}: record\n"
    assert (state["url"], state["counts"]["calls"]) == (started["url"], 1)
    assert "record, 1 call" in text
    assert off.stdout == f"{started['url']}: off\n"
    explained = nexus(tmp_path, "proxy", "call", call_id)
    assert explained.stdout.startswith(f"call {call_id}: other, claude-sonnet-4-5")
    assert "Hi." in explained.stdout
    assert json.loads(nexus(tmp_path, "proxy", "call", call_id, "--json").stdout)["explanation"]["lines"]
    after = nexus(tmp_path, "proxy", "status")
    assert (after.returncode, after.stderr) == (2, "nexus: no proxy is running (start one: nexus proxy)\n")
    missing = nexus(tmp_path, "proxy", "call", "none")
    assert missing.returncode == 2
    assert "not found" in missing.stderr
    ledger = tmp_path / ".nexus" / "proxy.db"
    assert ledger.stat().st_mode & 0o077 == 0
    sessions = json.loads(nexus(tmp_path, "sessions", "--ledger", str(ledger), "--json").stdout)
    assert len(sessions) == 1


def test_proxy_that_is_killed_is_not_shown_as_running(tmp_path: Path) -> None:
    command = [*NEXUS, "proxy", "--port", "0"]
    with subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert "Nexus proxy at" in running.stdout.readline()
        running.kill()
    assert nexus(tmp_path, "proxy", "status").returncode == 2
    assert list((tmp_path / ".nexus" / "proxies").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--budget", "10"), "budget of 10 tokens too small"),
        (("--mode", "fit"), "mode fit needs a budget"),
        (("--upstream", "ftp://x"), "'ftp://x' is no address"),
        (("--upstream", "nobody=http://x"), "Invalid enum value 'nobody'"),
        (("--config", "none.toml"), "none.toml: not readable"),
        (("--allow-remote",), "--allow-remote needs --token-file"),
        (("--host", "0.0.0.0"), "reachable from other machines"),
    ],
)
def test_wrong_settings_are_one_clear_line(tmp_path: Path, words: tuple[str, ...], error: str) -> None:
    ended = nexus(tmp_path, "proxy", *words)
    assert ended.returncode in (2, 4)
    assert error in ended.stderr
    assert "Traceback" not in ended.stderr


def test_settings_of_a_file(tmp_path: Path) -> None:
    (tmp_path / ".nexus").mkdir()
    file = tmp_path / ".nexus" / "proxy.toml"
    with model_server(reply("ok")) as provider, model_server(reply("ok")) as other:
        file.write_text(
            f'mode = "fit"\nbudget = 100000\n[budgets]\n"small-*" = 2000\n'
            f'[[upstreams]]\nurl = "{other.anthropic_url}"\nmodels = ["small-*"]\n'
            f'[[upstreams]]\nurl = "{provider.anthropic_url}"\n'
        )
        command = [*NEXUS, "proxy", "--port", "0", "--json"]
        with subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            url = json.loads(running.stdout.readline())["url"]
            for model in ("small-1", "claude-sonnet-4-5"):
                messages = [{"role": "user", "content": "word " * 3_000}]
                body = {"model": model, "max_tokens": 9, "messages": messages}
                status = httpx.post(f"{url}/v1/messages", json=body, trust_env=False).status_code
                assert status == (400 if model == "small-1" else 200)
            running.terminate()
    assert (len(provider.requests), len(other.requests)) == (1, 0)
    file.write_text("mode = 5")
    assert "proxy.toml: proxy settings invalid" in nexus(tmp_path, "proxy").stderr
    file.write_text("mode =")
    assert "proxy.toml" in nexus(tmp_path, "proxy").stderr


def test_wrap_runs_a_client_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text(CLIENT)
    with model_server(reply("Hello to you.")) as provider:
        ended = nexus(tmp_path, "wrap", sys.executable, "client.py", ANTHROPIC_BASE_URL=provider.anthropic_url)
        assert ended.stdout == "Hello to you.\n", ended.stderr
        assert provider.requests[-1].headers["authorization"] == "Bearer key-of-the-user"
    first, *_, last = ended.stderr.splitlines()
    assert "goes through http://127.0.0.1:" in first
    assert last.startswith("nexus: 1 call, ")
    assert list((tmp_path / ".nexus" / "proxies").iterdir()) == []
    assert b"key-of-the-user" not in (tmp_path / ".nexus" / "proxy.db").read_bytes()


def test_wrap_ends_with_the_clients_code(tmp_path: Path) -> None:
    assert nexus(tmp_path, "wrap", sys.executable, "-c", "raise SystemExit(7)").returncode == 7
    missing = nexus(tmp_path, "wrap", "no-such-client")
    assert missing.returncode == 2
    assert "client 'no-such-client' not started" in missing.stderr


def test_wrapped_client_is_stopped_with_its_wrapper(tmp_path: Path) -> None:
    script = (
        "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(9))\nprint('up', flush=True)\ntime.sleep(60)"
    )
    command = [*NEXUS, "wrap", sys.executable, "-c", script]
    with subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "up\n"
        time.sleep(0.2)
        running.terminate()
        assert running.wait(60) == 9


ORPHAN = """
import os, signal, sys, time
wrapper = os.getppid()
os.kill(wrapper, signal.SIGKILL)
while os.getppid() == wrapper:
    time.sleep(0.01)
print(*sys.argv[1:], flush=True)
"""
"""A client that kills its wrapper, and prints its arguments."""


def test_codex_gives_up_when_its_wrapper_was_killed(tmp_path: Path) -> None:
    program = tmp_path / "codex"
    program.write_text(f"#!{sys.executable}\n{ORPHAN}")
    program.chmod(0o700)
    killed = nexus(tmp_path, "wrap", str(program))
    assert killed.returncode == -signal.SIGKILL
    assert "-c features.unbounded_connection_retries=false" in killed.stdout


SESSION = [
    {"type": "user", "uuid": "a", "parentUuid": None, "message": {"role": "user", "content": "Look. " * 4_000}},
    *(
        {
            "type": "assistant",
            "uuid": f"b{number}",
            "parentUuid": f"c{number - 1}" if number else "a",
            "message": {
                "id": f"msg_{number}",
                "role": "assistant",
                "model": "claude-sonnet-4-5",
                "content": [{"type": "text", "text": f"Answer {number}. " + "word " * 400}],
                "usage": {"input_tokens": 12_000 + 900 * number, "output_tokens": 400},
            },
        }
        if kind == "reply"
        else {
            "type": "user",
            "uuid": f"c{number}",
            "parentUuid": f"b{number}",
            "message": {"role": "user", "content": f"Question {number}. " + "word " * 400},
        }
        for number in range(8)
        for kind in ("reply", "question")
    ),
]


def test_estimate_says_what_a_budget_would_have_changed(tmp_path: Path) -> None:
    folder = tmp_path / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    lines = [{**line, "sessionId": "s", "timestamp": f"2026-11-01T10:{n:02}:00Z"} for n, line in enumerate(SESSION)]
    (folder / "s.jsonl").write_text("\n".join(map(json.dumps, lines)))
    high = nexus(tmp_path, "proxy", "estimate")
    assert high.stdout.startswith("0 of 8 calls (0.0 %) in 1 session had more than 100,000 tokens."), high.stderr
    low = nexus(tmp_path, "proxy", "estimate", "--budget", "15000")
    assert "4 of 8 calls (50.0 %) in 1 session had more than 15,000 tokens." in low.stdout
    assert "simulated: $" in low.stdout
    (session,) = json.loads(nexus(tmp_path, "proxy", "estimate", "--budget", "15000", "--json").stdout)["sessions"]
    assert min(session["fitted_cost_usd"], session["cost_usd"]) > 0
    tiny = nexus(tmp_path, "proxy", "estimate", "--budget", "5000", str(folder / "s.jsonl"))
    assert "8 calls cannot be made within it" in tiny.stdout
    (folder / "bad.jsonl").write_text("{")
    assert "not read" in nexus(tmp_path, "proxy", "estimate").stderr
    assert nexus(tmp_path, "proxy", "estimate", HOME=str(tmp_path / "none")).returncode == 2


def test_doctor_finds_what_other_proxies_left_behind(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    settings = {"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}}
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps(settings))
    (tmp_path / ".bashrc").write_text("# x\nexport OPENAI_BASE_URL=http://localhost:9/v1\n")
    with model_server() as provider:
        url = provider.anthropic_url
        (tmp_path / "p.toml").write_text(f'[[upstreams]]\nurl = "{url}"\n')
        variables = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "OPENAI_API_KEY": "sk-secret"}
        ended = nexus(tmp_path, "proxy", "doctor", "--config", "p.toml", "--json", **variables)
    findings = {finding["subject"]: finding for finding in json.loads(ended.stdout)}
    assert ended.returncode == 1
    assert findings["~/.claude/settings.json"]["state"] == "problem"
    assert "line 2" in findings["~/.bashrc"]["text"]
    assert "nothing answers" in findings["ANTHROPIC_BASE_URL"]["text"]
    assert any(finding["text"] == f"{url} answers" for finding in json.loads(ended.stdout))
    assert "sk-secret" not in ended.stdout
    assert findings["OPENAI_API_KEY"]["state"] == "ok"


def test_answer_that_has_begun_ends_before_the_proxy(tmp_path: Path) -> None:
    body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": True}
    body["messages"] = [{"role": "user", "content": "Hi."}]
    with (
        model_server(reply("word " * 40, event_interval_s=0.03)) as provider,
        proxy_process(tmp_path, provider) as started,
    ):
        pieces: list[bytes] = []
        with httpx.stream("POST", f"{started['url']}/v1/messages", json=body, trust_env=False, timeout=60) as answer:
            for piece in answer.iter_raw():
                if not pieces:
                    os.kill(started["pid"], signal.SIGTERM)
                pieces.append(piece)
        call_id = answer.headers["x-nexus-call"]
    assert b"message_stop" in b"".join(pieces)
    assert json.loads(nexus(tmp_path, "proxy", "call", call_id, "--json").stdout)["session"]
