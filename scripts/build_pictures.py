"""The pictures of terminal output in the docs: each command is run in a terminal, on the example that ships with the project.

`make picture` calls it. Each picture is an SVG named after its command. The example is copied to a folder of its own,
whose path is shown as `agent`, so that the same program gives the same picture wherever it runs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import shutil
import struct
import sys
import termios
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
COLUMNS, LINES = 118, 50

COMMANDS: dict[str, tuple[str, ...]] = {
    "status": ("nexus status",),
    "skill": ("nexus skill list", "nexus skill show release-notes"),
    "credential": (
        "nexus credential set github --variable GITHUB_TOKEN",
        "nexus credential set search --variable SEARCH_KEY",
        "nexus credential list",
    ),
    "memory": ("nexus memory show", "nexus memory search index"),
}


def main() -> int:
    """Makes all pictures. Returns 1 if a command failed."""
    PICTURES.mkdir(exist_ok=True)
    failed = 0
    for name, commands in COMMANDS.items():
        with TemporaryDirectory() as folder:
            place = Path(folder) / "agent"
            shutil.copytree(ROOT / "examples" / "agent", place)
            shown: list[str] = []
            for command in commands:
                code, output = in_terminal(command.split(), place, Path(folder) / "home")
                failed |= code
                shown.append(f"\x1b[1m$ {command}\x1b[0m\n{output.replace(str(place), 'agent').rstrip()}")
            picture(PICTURES / f"{name}.svg", f"nexus {name}", "\n\n".join(shown))
    return int(bool(failed))


def in_terminal(command: list[str], folder: Path, home: Path) -> tuple[int, str]:
    """Runs a command with a terminal of its own; its exit code, and all that it wrote there."""
    variables = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "NEXUS_HOME": str(home),
        "GITHUB_TOKEN": "for the picture only",
    }
    process, handle = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvpe(command[0], command, variables)
    fcntl.ioctl(handle, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    data = b"".join(_read(handle))
    os.close(handle)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status), data.decode("utf-8", "replace").replace("\r\n", "\n")


def picture(place: Path, title: str, text: str) -> None:
    """The text with its colours as an SVG."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, legacy_windows=False)
        console.print(Text.from_ansi(text), soft_wrap=False)
        place.write_text(console.export_svg(title=title, unique_id="nexus"), "utf-8")
    print(place.relative_to(ROOT))


def _read(handle: int) -> list[bytes]:
    found: list[bytes] = []
    while True:
        try:
            chunk = os.read(handle, 1 << 16)
        except OSError as error:  # how Linux says that the other side is gone
            if error.errno == errno.EIO:
                return found
            raise
        if not chunk:
            return found
        found.append(chunk)


if __name__ == "__main__":
    raise SystemExit(main())
