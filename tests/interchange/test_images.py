"""Images from events, results, clients' lists and imported files: what the four formats are sent of them.

A row names the situation, who reported it (or "own"), and what must go out: the same bytes, a changed copy, or a note. Every
body is judged by the providers' official types, by their rules of sequence, and by the bytes of each image in it.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Mapping
from io import BytesIO
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import PIL.Image
import pytest

import nexus
from interchange.sent_images import SentImage, image_problems, sent_images
from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.types.config import Config, ImagesConfig
from nexus.types.message import Image, Message, Text, ToolCall, ToolResult, assistant
from support.validity import CHECKS

MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai": "gpt-4o",
    "responses": "gpt-4o",
    "gemini": "gemini-2.5-pro",
}
Outcome = Literal["same", "changed", "note"]
OWN = "own"
SEEN = nexus.AgentResult((assistant("seen"),))


def saved(width: int = 8, height: int = 8, kind: str = "PNG", mode: str = "RGB", **options: Any) -> bytes:
    target = BytesIO()
    PIL.Image.new(mode, (width, height)).save(target, kind, **options)
    return target.getvalue()


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def animated(kind: str) -> bytes:
    frames = [PIL.Image.new("RGB", (8, 8), (40 * n, 0, 0)) for n in range(3)]
    target = BytesIO()
    frames[0].save(target, kind, save_all=True, append_images=frames[1:])
    return target.getvalue()


ROTATED = PIL.Image.Exif()
ROTATED[0x0112] = 6
PNG = saved()
JPEG = saved(kind="JPEG")
PHOTO = saved(300, 300, "JPEG")
SVG = b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>'
BOMB = (
    b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 1, 0, 0, 0, 0))
    + chunk(b"IDAT", zlib.compress(b"\0" * 1_000))
    + chunk(b"IEND", b"")
)
HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\0" * 100


class Row(NamedTuple):
    name: str
    media_type: str
    data: str
    outcome: Outcome
    source: str = OWN
    other: Mapping[str, Outcome] = MappingProxyType({})
    """The outcome in single formats, where it is another one."""


ROWS = [
    Row("PNG", "image/png", b64(PNG), "same"),
    Row("JPEG", "image/jpeg", b64(JPEG), "same"),
    Row("WebP", "image/webp", b64(saved(kind="WEBP")), "same"),
    Row("GIF", "image/gif", b64(saved(kind="GIF")), "same", other={"gemini": "changed"}),
    Row("8,000 pixels", "image/png", b64(saved(8_000, 2)), "same"),
    Row("data after the image", "image/png", b64(PNG + b"more"), "same"),
    Row("rotated by metadata", "image/jpeg", b64(saved(8, 4, "JPEG", exif=ROTATED)), "same"),
    Row("damaged metadata", "image/jpeg", b64(saved(8, 4, "JPEG", exif=b"Exif\0\0MM\0*\0\0")), "same"),
    Row("JPEG called PNG", "image/png", b64(JPEG), "changed", "https://github.com/microsoft/vscode/issues/311732"),
    Row("WebP called JPEG", "image/jpeg", b64(saved(kind="WEBP")), "changed", "https://github.com/anthropics/claude-code/issues/12009"),
    Row("image/jpg", "image/jpg", b64(JPEG), "changed", "https://github.com/ogkalu2/comic-translate/pull/399"),
    Row("IMAGE/PNG", "IMAGE/PNG", b64(PNG), "changed"),
    Row("no type", "", b64(PNG), "changed"),
    Row("application/octet-stream", "application/octet-stream", b64(PNG), "changed", "https://github.com/anasfik/openai/issues/216"),
    Row("type with a parameter", "image/png; charset=binary", b64(PNG), "changed"),
    Row("lines of base64", "image/png", base64.encodebytes(saved(400, 400)).decode(), "changed"),
    Row("base64 of addresses", "image/png", base64.urlsafe_b64encode(PNG + b"\xfb\xff\xfe").decode().rstrip("="), "changed"),
    Row("data URL as data", "image/png", f"data:image/png;base64,{b64(PNG)}", "changed"),
    Row("8,001 pixels", "image/png", b64(saved(8_001, 2)), "changed", "https://github.com/NousResearch/hermes-agent/issues/25837"),
    Row("8,001 pixels high", "image/jpeg", b64(saved(2, 8_001, "JPEG")), "changed"),
    Row("16 bits", "image/png", b64(saved(mode="I;16")), "changed"),
    Row("CMYK", "image/jpeg", b64(saved(kind="JPEG", mode="CMYK")), "changed"),
    Row("animated GIF", "image/gif", b64(animated("GIF")), "changed", other={"anthropic": "same"}),
    Row("no end of a PNG", "image/png", b64(saved(64, 64)[:-12]), "changed"),
    Row("no end of a JPEG", "image/jpeg", b64(JPEG[:-2]), "note"),
    Row("SVG", "image/svg+xml", b64(SVG), "note", "https://github.com/anthropics/claude-code/issues/58330"),
    Row("SVG called PNG", "image/png", b64(SVG), "note", "https://github.com/anthropics/claude-code/issues/28279"),
    Row("SVG as text", "image/svg+xml", SVG.decode(), "note"),
    Row("BMP", "image/bmp", b64(saved(kind="BMP")), "note"),
    Row("BMP called PNG", "image/png", b64(saved(kind="BMP")), "note"),
    Row("TIFF", "image/tiff", b64(saved(kind="TIFF")), "note", "https://github.com/openclaw/openclaw/pull/102354"),
    Row("HEIC", "image/heic", b64(HEIC), "note", "https://github.com/openclaw/openclaw/pull/102354", {"gemini": "same"}),
    Row("PDF called PNG", "image/png", b64(b"%PDF-1.7\n" + b"x" * 99), "note"),
    Row("a path", "image/png", "/home/you/shot.png", "note", "https://github.com/anthropics/claude-code/issues/35310"),
    Row("a path that is base64", "image/png", "/pictures/shots/a", "note"),
    Row("a path of Windows", "image/png", "C:\\Users\\ann\\shot.png", "note"),
    Row("a path with ~", "image/jpeg", "~/shot.jpeg", "note"),
    Row("a name", "image/png", "screen shot.png", "note"),
    Row("cut PNG", "image/png", b64(saved(300, 300)[:200]), "note", "https://github.com/anomalyco/opencode/issues/4781"),
    Row("cut JPEG", "image/jpeg", b64(PHOTO[: len(PHOTO) // 2]), "note"),
    Row("cut WebP", "image/webp", b64(saved(300, 300, "WEBP")[:60]), "note"),
    Row("cut base64", "image/png", b64(PNG)[:40], "note"),
    Row("not base64", "image/png", "%%%", "note"),
    Row("text", "image/png", b64(b"see the attached file"), "note"),
    Row("600 times more pixels than are decoded", "image/png", b64(BOMB), "note"),
]  # fmt: skip


def opened(model: str, **images: int) -> Engine:
    return nexus.open(ledger=":memory:", model=model, config=Config(images=ImagesConfig(**images)))


def judged(ctx: AssembledContext, wire: str) -> list[SentImage]:
    """Return the images of a body that its provider would take."""
    body = getattr(ctx, f"to_{wire}")()
    assert CHECKS[wire](body) == []
    assert image_problems(body, wire) == []
    return list(sent_images(body))


def expect(row: Row, wire: str, images: list[SentImage], text: str) -> None:
    outcome = row.other.get(wire, row.outcome)
    if outcome == "note":
        assert images == [] and "not shown: " in text and row.data[:200] not in text
        return
    (image,) = images
    assert (image.data == row.data and image.media_type == row.media_type) == (outcome == "same")


def as_event(nx: Engine, row: Row) -> AssembledContext:
    return nx.assemble("See this.", images=[Image(row.media_type, row.data)], profile="bare")


def as_history(nx: Engine, row: Row) -> AssembledContext:
    nx.record(as_event(nx, row), SEEN)
    return nx.assemble("And now?", profile="bare")


def as_result(nx: Engine, row: Row) -> AssembledContext:
    call = ToolCall("c1", "look", "{}")
    nx.record(nx.assemble("Look.", profile="bare"), nexus.AgentResult((assistant("", call),)))
    result = ToolResult("c1", (Text("seen"), Image(row.media_type, row.data)), "look")
    return nx.assemble([Message("tool", (result,))], profile="bare")


def item_of(wire: str, row: Row) -> list[Any]:
    """A client's list with the image, in the format's own form."""
    url = f"data:{row.media_type};base64,{row.data}"
    match wire:
        case "anthropic":
            source = {"type": "base64", "media_type": row.media_type, "data": row.data}
            content: list[Any] = [{"type": "text", "text": "See this."}, {"type": "image", "source": source}]
            return [{"role": "user", "content": content}]
        case "openai":
            part = {"type": "image_url", "image_url": {"url": url, "detail": "high"}}
            return [{"role": "user", "content": [{"type": "text", "text": "See this."}, part]}]
        case "responses":
            image = {"type": "input_image", "image_url": url, "detail": "high"}
            return [{"role": "user", "content": [{"type": "input_text", "text": "See this."}, image]}]
        case _:
            blob = {"inline_data": {"mime_type": row.media_type, "data": row.data}}
            return [{"role": "user", "parts": [{"text": "See this."}, blob]}]


def as_list(nx: Engine, wire: str, row: Row) -> AssembledContext:
    return nx.mirror(item_of(wire, row), provider=wire, profile="bare")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("wire", MODELS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_image_of_an_event_is_sent_as_its_bytes_are_or_becomes_a_note(row: Row, wire: str) -> None:
    with opened(MODELS[wire]) as nx:
        ctx = as_event(nx, row)
        expect(row, wire, judged(ctx, wire), str(ctx.current))
        later = as_history(nx, row)
        expect(row, wire, judged(later, wire), str(later.messages))
        stored = [part for message in nx.history("main") for part in message.parts if isinstance(part, Image)]
        assert [(image.media_type, image.data) for image in stored] == [(row.media_type, row.data)]
        noted = [warning for warning in ctx.warnings if warning.source == "nexus:event"]
        assert bool(noted) == (row.other.get(wire, row.outcome) == "note")


@pytest.mark.parametrize("wire", MODELS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_image_of_a_result_is_sent_as_its_bytes_are_or_becomes_a_note(row: Row, wire: str) -> None:
    with opened(MODELS[wire]) as nx:
        ctx = as_result(nx, row)
        images = judged(ctx, wire)
        if wire in ("anthropic", "responses"):
            expect(row, wire, images, str(ctx.current))
        else:
            assert images == []


@pytest.mark.parametrize("wire", MODELS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_image_of_a_list_is_sent_as_its_bytes_are_or_becomes_a_note(row: Row, wire: str) -> None:
    if wire == "gemini" and not row.media_type.lower().startswith("image/"):
        pytest.skip("such a part is a document or audio there")
    with opened(MODELS[wire]) as nx:
        ctx = as_list(nx, wire, row)
        data_is_url = row.data.startswith("data:") and wire in ("openai", "responses")
        images = judged(ctx, wire)
        if not data_is_url:
            expect(row, wire, images, str(ctx.messages))
        body = json.dumps(getattr(ctx, f"to_{wire}")())
        assert "See this." in body
        if wire in ("openai", "responses") and images and row.outcome != "note":
            assert '"detail": "high"' in body
