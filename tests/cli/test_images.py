"""Images and text files on the command line: taken by content, refused by name, and brought back from a session."""

from __future__ import annotations

import base64
import os
from io import BytesIO
from pathlib import Path

import PIL.Image
import pytest

import nexus
from cli.conftest import EXAMPLES
from cli.running import run
from nexus.types.message import Image, Message, Text, ToolCall, ToolResult, assistant
from support.replay import append


def test_an_image_is_shrunk_to_what_the_model_of_the_call_makes_use_of(empty: Path) -> None:
    PIL.Image.new("RGB", (3000, 1500), "white").save(empty / "large.png")
    for model, width in (("claude-sonnet-4-5", 1568), ("gpt-4o", 1536)):
        ran = run("assemble", "Hi", "--image", "large.png", "-m", model, "--as", "anthropic", folder=empty)
        (image,) = [part for part in ran.json["messages"][-1]["content"] if part["type"] == "image"]
        data = base64.b64decode(image["source"]["data"])
        assert PIL.Image.open(BytesIO(data)).size == (width, width // 2)


def test_of_an_animation_a_warning_says_that_one_frame_is_shown(empty: Path) -> None:
    frames = [PIL.Image.new("L", (8, 8), 10 * n) for n in range(3)]
    frames[0].save(empty / "moving.gif", save_all=True, append_images=frames[1:])
    ran = run("assemble", "Hi", "--image", "moving.gif", folder=empty)
    assert ran.code == 0 and ran.err == "Warning: moving.gif: only the first frame of the animation is shown\n"


def test_one_bad_image_among_good_ones_is_refused_and_nothing_is_made(empty: Path) -> None:
    ran = run("assemble", "Hi", "--image", EXAMPLES / "latency.png", "--image", "missing.png", folder=empty)
    assert (ran.code, ran.out) == (4, "") and "missing.png" in ran.err


@pytest.mark.parametrize("option", ["--image", "--attach"])
def test_a_pipe_a_device_and_a_folder_are_refused(empty: Path, option: str) -> None:
    os.mkfifo(empty / "pipe")
    for name in ("pipe", "/dev/zero", "."):
        ran = run("assemble", "Hi", option, name, folder=empty)
        assert ran.code in (2, 4) and ran.out == ""


def test_text_files_are_taken_whole_or_by_lines_and_others_refused(empty: Path) -> None:
    (empty / "a.txt").write_text("one\ntwo\nthree\n")
    assert run("assemble", "Hi", "--attach", "a.txt", "--attach", "a.txt:2-3", folder=empty).code == 0
    for name in ("a.txt:4-5", "a.txt:3-2", EXAMPLES / "latency.png", "missing.txt"):
        ran = run("assemble", "Hi", "--attach", name, folder=empty)
        assert (ran.code, ran.out) == (4, "") and str(name).partition(":")[0] in ran.err


def test_a_file_over_the_cap_is_cut_with_a_warning(empty: Path) -> None:
    (empty / "long.txt").write_text("a line of text\n" * 3_000)
    ran = run("assemble", "Hi", "--attach", "long.txt", folder=empty)
    assert ran.code == 0 and "Warning: long.txt: " in ran.err and "cap: 20,000" in ran.err


def test_history_writes_the_images_of_a_session_as_files(empty: Path) -> None:
    data = (EXAMPLES / "latency.png").read_bytes()
    shot = Image("image/png", base64.b64encode(data).decode(), width=640, height=400)
    with nexus.open(empty) as nx:
        append(nx, "s", Message("user", (Text("see"), shot, Image("image/png", url="https://x.y/\x1b[2Ja.png"))))
        append(nx, "s", assistant("", ToolCall("c1", "look", "{}")))
        append(nx, "s", Message("tool", (ToolResult("c1", (shot, Image("image/png", "%%%")), "look"),)))
    ran = run("history", "s", "--images", "shots", folder=empty)
    assert ran.code == 0 and "see" in ran.out and "\x1b" not in ran.err
    assert sorted(path.name for path in (empty / "shots").iterdir()) == ["1.0-1.png", "3.0-1.png"]
    assert (empty / "shots" / "1.0-1.png").read_bytes() == data
    assert "is only an address: https://x.y/" in ran.err and "Image 3.0-2 not written: its data is damaged" in ran.err
    (empty / "shots" / "1.0-1.png").write_bytes(b"mine")
    again = run("history", "s", "--call", "c1", "--images", "shots", folder=empty)
    assert "3.0-1.png exists" in again.err and "1.0-1" not in again.err
    assert run("history", "s", "--images", "shots", folder=empty).code == 0
    assert (empty / "shots" / "1.0-1.png").read_bytes() == b"mine"
    (empty / "file").write_text("")
    assert run("history", "s", "--images", "file/sub", folder=empty).code == 4
