"""Small conversations that tests of compaction share."""

from __future__ import annotations

import json

from nexus.tokens.counter import get_counter
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Message, TokenSize, ToolCall, assistant, tool, user

COUNTER = get_counter("estimate")


class Characters:
    """Counts characters, so that sizes in tests are plain."""

    name = "characters"

    def count(self, text: str) -> int:
        return len(text)


def rows(*messages: Message, first_seq: int = 1) -> list[StoredMessage]:
    """The messages as rows of a ledger, one entry each."""
    return [
        StoredMessage(MessageRef(first_seq + at, 0), message, TokenSize(1, 1, 1)) for at, message in enumerate(messages)
    ]


def call(number: int, name: str, **arguments: object) -> Message:
    return assistant("", ToolCall(f"call_{number}", name, json.dumps(arguments)))


def result(number: int, text: str, *, failed: bool = False) -> Message:
    return tool(f"call_{number}", text, is_error=failed)


PORTS = rows(
    user("Build a small status server in Python. Never log passwords. The port is 8080."),
    assistant("I have created the server."),
    call(1, "write_file", path="src/server.py", content="..."),
    result(1, "ok"),
    call(2, "bash", command="pytest -q"),
    result(2, "FAILED tests/test_server.py::test_port\nE   ConnectionError: refused\n1 failed"),
    call(3, "edit_file", path="src/server.py", old="a", new="b"),
    result(3, "ok"),
    call(4, "bash", command="pytest -q"),
    result(4, "3 passed in 0.12s"),
    assistant("All tests pass. Next step is the Dockerfile."),
    user("We decided to use uvicorn instead of gunicorn. The port is 9090 now, see ticket OPS-4711."),
    assistant("I have updated the configuration."),
    user("Please write the Dockerfile next."),
)
"""A server is built; a test fails and is mended; the port changes."""
