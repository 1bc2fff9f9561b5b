"""The image of a chat, docs/pictures/chat.svg: `nexus chat` in a terminal, on the example workspace and session.

`make picture` calls it. The program, its tool calls and figures are real; the model's replies are scripted, so that the
image needs no key and is the same each time.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory

from build_pictures import PICTURES, ROOT, write_svg

from nexus.testing.model_server import model_server, reply
from nexus.types.message import ToolCall

COLUMNS, LINES = 100, 60
WAIT_S = 60.0
ANSWER = """\
A **GIN index on the stored tsvector**, and trigrams for the title alone:

| column | index | Chinese and Japanese |
|---|---|---|
| `body_tsv` | GIN, configuration `simple` | cut into overlapping bigrams by ingest |
| `title` | GIN, trigrams | as they are |

Still open: bigrams nearly double the size of long Chinese texts.
"""
SCRIPT = (
    reply("", ToolCall("call_1", "search_memory", '{"query": "index"}'), input_tokens=57_810),
    reply(ANSWER, input_tokens=58_040, cache_read_tokens=57_810, output_tokens=97),
)
KEYS = (("What did we decide about the index?", "2 calls"), ("/session", "of input cached"))
LAUNCH = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, '-m', 'nexus', *sys.argv[1:]])"
)
CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b[=>()][A-Z0-9]?|[\r\n\b]|\x07")


class TerminalScreen:
    """The cells of a screen: characters with the codes of their colors. It takes what the chat writes, and no more."""

    def __init__(self) -> None:
        self.rows: list[dict[int, tuple[str, str]]] = [{}]
        self.row = self.column = 0
        self.color = ""

    def write(self, text: str) -> None:
        """Write output of a program."""
        at = 0
        for control in CONTROL.finditer(text):
            self._put(text[at : control.start()])
            self._obey(control)
            at = control.end()
        self._put(text[at:])

    def text(self) -> str:
        """Return the lines, with their colors."""
        lines: list[str] = []
        for row in self.rows:
            cells = [row.get(column, (" ", "")) for column in range(max(row, default=-1) + 1)]
            runs = groupby(cells, key=itemgetter(1))
            lines.append("".join(f"\x1b[0;{color or '0'}m{''.join(char for char, _ in run)}" for color, run in runs))
        return "\x1b[0m\n".join(lines)

    def _put(self, text: str) -> None:
        for char in text:
            self.rows[self.row][self.column] = (char, self.color)
            self.column += 1

    def _obey(self, control: re.Match[str]) -> None:
        values = [int(value or 0) for value in (control[1] or "").strip("?").split(";")]
        count = max(values[0], 1)
        match control[2] or control[0]:
            case "m":
                codes = (control[1] or "0").split(";")
                after_reset = codes[len(codes) - codes[::-1].index("0") :] if "0" in codes else [self.color, *codes]
                self.color = ";".join(filter(None, after_reset))
            case "A":
                self.row = max(self.row - count, 0)
            case "B" | "\n":
                self.row += count if control[2] else 1
                self.rows += ({} for _ in range(len(self.rows), self.row + 1))
            case "C":
                self.column += count
            case "D" | "\b":
                self.column = max(self.column - count, 0)
            case "\r":
                self.column = 0
            case "K":
                self._clear_line(values[0])
            case "J":
                self._clear_line(0)
                del self.rows[self.row + 1 :]
            case _:
                pass

    def _clear_line(self, part: int) -> None:
        if part == 2:
            self.rows[self.row].clear()
        for column in [column for column in self.rows[self.row] if column >= self.column]:
            del self.rows[self.row][column]


def main() -> int:
    """Write the image."""
    with TemporaryDirectory() as folder, model_server(*SCRIPT) as server:
        workspace = Path(folder) / "agent"
        shutil.copytree(ROOT / "examples" / "agent", workspace, ignore=shutil.ignore_patterns(".nexus"))
        variables = {
            "PATH": os.environ.get("PATH", ""),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "NEXUS_HOME": str(Path(folder) / "home"),
        }
        session = str(ROOT / "examples" / "session.json")
        command = [sys.executable, "-m", "nexus", "import", session, "--session", "main"]
        subprocess.run(command, cwd=workspace, env=variables, check=True, capture_output=True)
        options = ("chat", "--base-url", server.openai_url, "-m", "claude-sonnet-5-5")
        output = talk(options, workspace, variables)
    output = re.sub(r"Last turn, [^:]*:", "Last turn, 3 days ago:", output)  # the same on each day
    screen = TerminalScreen()
    screen.write(output.replace(str(workspace.resolve()), "agent").replace(str(workspace), "agent"))
    lines = screen.text().rstrip().split("\n")
    write_svg(
        PICTURES / "chat.svg", "nexus chat", "\n".join(("\x1b[1m$ nexus chat\x1b[0m", *lines[: last_line(lines)]))
    )
    return 0


def last_line(lines: list[str]) -> int:
    """Return the number of lines before the empty prompt at the end."""
    return max(number for number, line in enumerate(lines) if "cost" in line) + 1


def talk(options: tuple[str, ...], folder: Path, variables: dict[str, str]) -> str:
    """Return the output of a chat in which the keys are pressed."""
    terminal, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    command = [sys.executable, "-c", LAUNCH, *options]
    process = subprocess.Popen(command, cwd=folder, env=variables, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    output, seen = b"", 0

    def wait_for(text: str) -> None:
        nonlocal output, seen
        deadline = time.monotonic() + WAIT_S
        while text not in output[seen:].decode("utf-8", "ignore"):
            if time.monotonic() > deadline:
                raise SystemExit(f"{text!r} did not come: {output[seen:]!r}")
            if select.select([terminal], [], [], 1.0)[0]:
                data = os.read(terminal, 1 << 16)
                output += data
                if b"\x1b[6n" in data:
                    os.write(terminal, b"\x1b[1;1R")
        seen = len(output)

    wait_for("· context")
    for line, text in KEYS:
        os.write(terminal, f"{line}\r".encode())
        wait_for(text)
        wait_for("· context")
    process.kill()
    process.wait()
    os.close(terminal)
    return output.decode("utf-8", "ignore")


if __name__ == "__main__":
    raise SystemExit(main())
