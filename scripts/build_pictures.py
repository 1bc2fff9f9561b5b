"""Images of terminal output for the docs: each command runs in a terminal, on the example workspace.

`make picture` calls it. Each image is an SVG named after its command. The example is copied to a temporary folder, whose
path is shown as `agent`, so that the images do not depend on the machine.
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
from collections.abc import Iterator
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
        "nexus config credential set github --variable GITHUB_TOKEN",
        "nexus config credential set search --variable SEARCH_KEY",
        "nexus config credential list",
    ),
    "memory": ("nexus memory show", "nexus memory search index"),
}


def main() -> int:
    """Write all images. Returns 1 if a command failed."""
    PICTURES.mkdir(exist_ok=True)
    failed = 0
    for name, commands in COMMANDS.items():
        with TemporaryDirectory() as folder:
            workspace = Path(folder) / "agent"
            shutil.copytree(ROOT / "examples" / "agent", workspace)
            texts: list[str] = []
            for command in commands:
                code, output = run_in_terminal(command.split(), workspace, Path(folder) / "home")
                failed |= code
                texts.append(f"\x1b[1m$ {command}\x1b[0m\n{output.replace(str(workspace), 'agent').rstrip()}")
            write_svg(PICTURES / f"{name}.svg", f"nexus {name}", "\n\n".join(texts))
    return int(bool(failed))


def run_in_terminal(
    command: list[str], folder: Path, home: Path, variables: dict[str, str] | None = None
) -> tuple[int, str]:
    """Run a command in a new terminal and return its exit code and output. `variables`: its whole environment."""
    variables = variables or {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "NEXUS_HOME": str(home),
        "GITHUB_TOKEN": "for the picture only",
    }
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvpe(command[0], command, variables)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    data = b"".join(_chunks(terminal))
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status), data.decode("utf-8", "replace").replace("\r\n", "\n")


def write_svg(file: Path, title: str, text: str) -> None:
    """Write the text with its colors as an SVG file."""
    with Path(os.devnull).open("w") as null:
        console = Console(record=True, width=COLUMNS, file=null, force_terminal=True, legacy_windows=False)
        console.print(Text.from_ansi(text), soft_wrap=False)
        file.write_text(console.export_svg(title=title, unique_id="nexus"), "utf-8")
    print(file.relative_to(ROOT))


def _chunks(terminal: int) -> Iterator[bytes]:
    """Yield the output until the program closes its side of the terminal."""
    while True:
        try:
            chunk = os.read(terminal, 1 << 16)
        except OSError as error:
            if error.errno == errno.EIO:  # Linux reports a closed terminal as an I/O error
                return
            raise
        if not chunk:
            return
        yield chunk


if __name__ == "__main__":
    raise SystemExit(main())
