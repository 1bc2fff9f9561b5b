"""Comparison of a call's prompt with the last one's: whether it extends it; if not, where it breaks and what that costs.

A provider's prompt cache hits as long as a call extends the last one. A manifest holds hashes and chain values, so the
comparison does not depend on the length of the history. The location of a break is computed only where there is one.
Tokens count as lost if the earlier prompt is unknown, so that the tokens reported as stable are stable.

Stable and lost tokens are estimates that err to neither side, unlike the budget's: the last prompt counts as its provider
reported, and a part of it by its own content, without the allowance for framing and the calibration's headroom.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from msgspec.structs import replace

from nexus.assembly.fit.request_images import RequestImages
from nexus.assembly.fit.result import FitResult
from nexus.assembly.fit.window import Window
from nexus.assembly.formats.registry import FORMATS
from nexus.assembly.manifest_store import StoredManifest
from nexus.context import Manifest, PrefixReport
from nexus.providers.prompt_cache import price_of_break
from nexus.tokens.calibration import is_plausible
from nexus.tokens.content import MeasuredContent
from nexus.tokens.counter import TokenCounter
from nexus.tokens.message_tokens import message_tokens, text_tokens_json
from nexus.tokens.scale import TokenScale
from nexus.types.block import Block, block_key
from nexus.types.history import OLDER_ENTRIES
from nexus.types.ledger_entries import Entry, MessageRef
from nexus.types.message import Message
from nexus.types.sanitize import sanitize_text


def compare_manifests(before: StoredManifest | None, now: Manifest, result: FitResult) -> PrefixReport:
    """Return the prefix report of a call; `before` is the manifest of the view's last recorded call."""
    if before is None:
        return PrefixReport("first")
    window = result.window
    causes = changes_before_history(before, now)
    if before.mark != now.mark:
        causes.append("the history was compacted or cleared")
    elif before.cut != now.cut:
        causes.extend(_cut_causes(before, now, window))
    elif not same_pins(before, now, window):
        causes.append("the pinned messages among those left out changed")
    elif not window.path.has_hash(before.head, before.head_hash):
        causes.append("the history is another one")
    elif before.recorded_at - before.head - 1 != sum(seq > before.head for seq in before.event_seqs):
        causes.append("other turns were recorded between the last call's context and its reply")
    if rewritten_place(before, window) is not None:
        causes.append(window.rules.path_format.rewriting)
    if not _moved(before, now, window) and image_change(before, result) is not None:
        causes.append(_image_cause(before, result.images))
    if before.image_limits not in (None, now.image_limits) and window.images:
        causes.append("the limits of images changed")
    if before.synthetic_results and not before.answered:
        causes.append("the last call got no answer, and results that it lacked may have come since")
    if before.render != now.render:
        causes.append("another version of Nexus renders differently")
    return PrefixReport("broken", tuple(causes)) if causes else PrefixReport("extends")


def changes_before_history(before: Manifest, now: Manifest) -> list[str]:
    """Return what differs between two prompts in what a cache has before the history: blocks, tools, model, settings."""
    return [*_changed_blocks(before, now), *_changed_settings(before, now)]


def rewritten_place(before: StoredManifest, window: Window) -> MessageRef | None:
    """Return the first message of the last call that the window's format shows differently now; None if there is none."""
    own_seqs = {*before.event_seqs, before.recorded_at}
    refs = window.rules.path_format.rewritten_since(before.head, before.starts_turn)
    return next((ref for ref in refs if ref.seq <= before.head or ref.seq in own_seqs), None)


def image_change(before: Manifest, result: FitResult) -> int | None:
    """Return the first message of the history whose images are sent in another form than in the last call.

    None if none is: the number of images has not passed a provider's limit since.
    """
    if before.image_limits is None or result.images.limits != before.image_limits:
        return None
    end = len(result.window.opening.messages) + len(result.window.messages)
    return result.images.first_change(before.image_edge, before.image_notes, end)


def _image_cause(before: Manifest, images: RequestImages) -> str:
    if images.notes != before.image_notes:
        return "the oldest images became notes: the request has more images than the provider takes"
    return f"images over {images.limits.many_edge_px:,} pixels were shrunk: there are more than {images.limits.many_images}"


def _changed_settings(before: Manifest, now: Manifest) -> Iterator[str]:
    """Yield what changed of message format, tools, model and settings."""
    if before.message_format != now.message_format:
        yield f"the conversation is shown in the form {now.message_format} and was in {before.message_format}"
    if before.tools != now.tools:
        yield "the tool definitions changed"
    if before.model != now.model:
        yield f"the model changed from {before.model}"
    if any(_settings_differ(before, now)):
        yield "the model's settings changed"


def _settings_differ(before: Manifest, now: Manifest) -> tuple[bool, bool]:
    """Return whether the settings that the cache depends on differ: from the beginning, and from the first message on.

    Manifests of earlier versions have one hash of all settings.
    """
    if "" in before.cached_settings:
        return before.config != now.config, False
    return before.cached_settings[0] != now.cached_settings[0], before.cached_settings[1] != now.cached_settings[1]


def same_pins(before: Manifest, now: Manifest, window: Window) -> bool:
    """Return True if the same groups are shown before the first message, for the same reasons.

    Manifests of earlier versions list them, and older ones without reasons.
    """
    if before.opening_hash or not (before.pins or before.pin_kinds):
        return (before.opening_hash, before.pins) == (now.opening_hash, now.pins)
    places, kinds = window.opening_pins()
    return before.pins == tuple(sorted({*places, *now.pins})) and before.pin_kinds in ((), kinds)


def _cut_causes(before: Manifest, now: Manifest, window: Window) -> Iterator[str]:
    """Yield the effect of a new cut."""
    first_stays = before.first == now.first
    reason = window.cut.reason if window.cut is not None else ""
    memory = FORMATS[now.message_format].memory
    if memory is not None and not reason:
        return  # a cut within an earlier turn does not affect this one
    if memory is not None and reason == OLDER_ENTRIES:
        yield f"older entries left the {memory.name}"
    elif reason == "old images" and first_stays:
        yield "images of older turns became notes"
    elif first_stays:
        yield "older results of tools were shortened to stay within the budget"
    else:
        yield "older messages were cut to stay within the budget"


def _changed_blocks(before: Manifest, now: Manifest) -> list[str]:
    """Return what happened to the blocks of the system prompt and the preamble."""
    old, new = ({**manifest.blocks, **manifest.preamble_blocks} for manifest in (before, now))
    causes = [f"{source} is gone" for source in sorted(old.keys() - new.keys())]
    causes.extend(f"{source} is new" for source in sorted(new.keys() - old.keys()))
    causes.extend(f"{source} changed" for source in sorted(old.keys() & new.keys()) if old[source] != new[source])
    if not causes and before.system != now.system:
        causes.append("the order or form of the system blocks changed")
    return causes


_BEGINNING = "the beginning of the history"


@dataclass(frozen=True, slots=True)
class PrefixCosts:
    """The sizes by which a break is located, in base tokens."""

    tools: int
    system: int

    blocks: Mapping[str, tuple[int, int]]
    """Tokens and UTF-8 bytes of the system prompt's blocks, by name."""

    window: Window

    earlier_messages: Sequence[Message] | None
    """The messages of the earlier prompt, from its opening on; None if they are unknown."""

    scale: TokenScale
    request: int
    """The part of `system` that is an allowance for the rest of the request body."""

    system_text: str
    current: int = 0
    image_change: int | None = None
    """First message whose images are sent in another form, by index; None without one."""
    preamble_blocks: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Tokens and UTF-8 bytes of the blocks that are messages, by name."""

    @property
    def preamble(self) -> int:
        """Tokens of the blocks that are messages."""
        return sum(tokens for tokens, _ in self.preamble_blocks.values())


def block_tokens(blocks: Iterable[Block], counter: TokenCounter) -> dict[str, tuple[int, int]]:
    """Return the base tokens and UTF-8 bytes of blocks, by name."""
    texts = ((block_key(block), sanitize_text(block.text)) for block in blocks)
    return {name: (text_tokens_json(text, counter), len(text.encode())) for name, text in texts}


def pinned_places(window: Window, verbatim_indexes: Iterable[int] = ()) -> tuple[tuple[int, int, int], ...]:
    """Return the messages that are whole because they are pinned, sorted: of the event, and outside the opening."""
    untruncated = {(place.seq, place.ord, 0) for place in window.reductions.untruncated}
    untruncated.difference_update(window.opening_pins()[0])
    return tuple(sorted(untruncated | {(window.head + 1, index, 0) for index in verbatim_indexes}))


def previously_visible(before: StoredManifest, window: Window, mark: Entry | None) -> list[Message] | None:
    """Return the messages of the last call, from the window before a cut; None if it was another window.

    If other turns came between, or missing results may have come, the messages end at the last call's head.
    """
    now = replace(
        before,
        cut=window.cut.number if window.cut else 0,
        mark=mark.seq if mark else 0,
        pins=pinned_places(window),
        pin_kinds=(),
        opening_hash=window.opening_hash(),
        first=(window.first.seq, window.first.ord),
    )
    if _moved(before, now, window) or not window.path.has_hash(before.head, before.head_hash):
        return None
    messages = [*window.opening.messages, *window.messages]
    interrupted = before.recorded_at != before.head + 1 or (before.synthetic_results and not before.answered)
    if interrupted:
        return messages[: _until(window, before.head)]
    return messages


def stable_tokens_if_extended(before: StoredManifest, prefix_tokens: int, factor: float) -> int:
    """Return the tokens of the last prompt, which this one extends: as reported, else as counted.

    `prefix_tokens` are the base tokens before the current message. They are fewer than the last prompt's in formats in
    which earlier turns are not messages, and the only count of a manifest of an earlier version.
    """
    if not before.base or prefix_tokens < before.base:
        return int(prefix_tokens * factor)
    if is_plausible(before.base, before.reported):
        return before.reported
    return int(before.base * factor)


def locate_break(report: PrefixReport, before: StoredManifest, now: Manifest, costs: PrefixCosts) -> PrefixReport:
    """Return the report with the first difference, the stable and the lost tokens, and the price.

    `byte` is the start of the first different block in the text of the system prompt; None for any other difference.
    """
    difference = _first_difference(before, now, costs)
    prompt = costs.tools + costs.system + costs.preamble + costs.window.tokens
    is_same_model = before.model == now.model
    is_reported = is_same_model and is_plausible(before.base, before.reported)
    if is_reported:
        last_tokens = before.reported
    else:
        last_tokens = before.base * (before.factor if is_same_model else costs.scale.factor)
    tokens = int(min(last_tokens, _without_current(prompt, costs)))
    stable_tokens = min(int(_estimated_tokens(difference, costs) * _scale(before, costs, is_reported)), tokens)
    lost_tokens = tokens - stable_tokens
    price = price_of_break(
        lost_tokens, costs.scale.model, prompt_tokens=int((prompt + costs.current) * costs.scale.factor)
    )
    return replace(
        report,
        at=difference.at,
        byte=difference.byte,
        stable_tokens=stable_tokens,
        lost_tokens=lost_tokens,
        price=None if price is None else float(price),
    )


@dataclass(frozen=True, slots=True)
class _Difference:
    """The first difference of two prompts, and the part before it."""

    at: str
    tokens: int
    """Base tokens before it."""
    byte: int | None = None
    """Its place in the system prompt."""
    messages: int = 0
    """Messages of the history before it."""


def _estimated_tokens(difference: _Difference, costs: PrefixCosts) -> float:
    """Return the tokens before a difference: by content for a model with rates for it, else in base tokens."""
    stable = difference.tokens
    rates = costs.scale.model.content
    if rates is None or not stable:
        return stable
    tools = min(stable, costs.tools)
    system = min(max(stable - costs.tools, 0), costs.system - costs.request)
    content = MeasuredContent()
    text = costs.system_text.encode("utf-8", "replace")[: difference.byte].decode("utf-8", "replace")
    content.add_text([text], system)
    remaining = stable - tools - system
    if difference.messages:
        window = costs.window
        wire = costs.scale.model.provider_format
        count = len(costs.window.opening.messages)
        history = _tokens_of_messages(window, difference.messages, costs.scale.counter)
        remaining -= history
        opening = min(window.opening.tokens, history)
        content.add_messages(window.opening.messages[: difference.messages], opening, wire)
        for index in range(difference.messages - count):
            content.add_messages((window.messages[index],), window.sums[index + 1] - window.sums[index], wire)
    content.texts["words"] = content.texts.get("words", 0) + remaining  # blocks that are messages
    fixed = _framing(costs) + tools * costs.scale.model.token_factor
    return fixed + content.estimated_tokens(rates, costs.scale.model.token_factor)


def _framing(costs: PrefixCosts) -> int:
    """Return the tokens that a provider adds to every request, and to one with tools."""
    rates = costs.scale.model.content
    if rates is None:
        return 0
    return rates.request + (rates.tools if costs.tools else 0)


def _without_current(prompt: int, costs: PrefixCosts) -> float:
    """Return the provider's tokens of the prompt before the current message, which has no part of the framing."""
    total = max(prompt + costs.current, 1)
    # By its reported usage a small prompt may be smaller than the framing.
    framing = min(_framing(costs), total * costs.scale.factor)
    return framing + prompt * max(costs.scale.factor - framing / total, 0)


def _scale(before: StoredManifest, costs: PrefixCosts, is_reported: bool) -> float:
    """Return the provider's tokens per estimated token: of the last prompt if it was reported, else as calibrated."""
    if not is_reported:
        return costs.scale.factor / costs.scale.content_factor
    if costs.scale.model.content:
        estimated = before.base * before.content_factor
    else:
        estimated = max(before.base - costs.request, 1)
    return before.reported / estimated


def _first_difference(before: StoredManifest, now: Manifest, costs: PrefixCosts) -> _Difference:
    """Return the first difference."""
    # Whatever precedes everything else, or changes all of it.
    if before.model != now.model:
        return _Difference("the model", 0)
    if before.render != now.render:
        return _Difference("the rendering", 0)
    if before.tools != now.tools:
        return _Difference("the tool definitions", 0)
    differs_at_start, differs_at_messages = _settings_differ(before, now)
    if differs_at_start:
        return _Difference("the settings", 0)
    if before.system != now.system:
        name, tokens, byte = _first_block(before.blocks, now.blocks, costs.blocks, costs.tools)
        return _Difference(f"{name} in the system slot" if name else "the end of the system slot", tokens, byte)
    fixed = costs.tools + costs.system - costs.request
    if differs_at_messages:
        return _Difference("the settings", fixed)
    if list(before.preamble_blocks.items()) != list(now.preamble_blocks.items()):
        name, tokens, _ = _first_block(before.preamble_blocks, now.preamble_blocks, costs.preamble_blocks, fixed)
        return _Difference(f"{name or 'the end of the blocks'} before the conversation", tokens)
    fixed += costs.preamble
    window = costs.window
    if before.message_format != now.message_format:
        return _Difference(_BEGINNING, fixed)
    if costs.earlier_messages is not None:
        index = common_prefix_length(costs.earlier_messages, window)
    elif _moved(before, now, window) or not window.path.has_hash(before.head, before.head_hash):
        return _Difference(_BEGINNING, fixed)
    else:
        index = _until(window, before.head)
    place = rewritten_place(before, window)
    if place is not None:
        index = min(index, _until(window, place.seq - 1))
    index = index if costs.image_change is None else min(index, costs.image_change)
    tokens = fixed + _tokens_of_messages(window, index, costs.scale.counter)
    return _Difference(f"message {index + 1} of the history", tokens, messages=index)


def common_prefix_length(prompt: Sequence[Message], window: Window) -> int:
    """Return the number of messages that a prompt and a window both begin with."""
    index = 0
    for old, new in zip(prompt, chain(window.opening.messages, window.messages), strict=False):
        if old is not new and old != new:
            break
        index += 1
    return index


def _tokens_of_messages(window: Window, count: int, counter: TokenCounter) -> int:
    """Return the base tokens of a window's first messages."""
    opening = window.opening
    if count < len(opening.messages):
        common = opening.messages[:count]
        return sum(window.rules.weight(message, message_tokens(message, counter)) for message in common)
    return opening.tokens + window.sums[count - len(opening.messages)]


def _first_block(
    before: Mapping[str, str], now: Mapping[str, str], sizes: Mapping[str, tuple[int, int]], tokens: int
) -> tuple[str | None, int, int]:
    """Return the first block that differs, None for the end; the tokens before it, after `tokens`; its byte."""
    byte = 0
    old = iter(before.items())
    for name, digest in now.items():
        if next(old, None) != (name, digest):
            return name, tokens, byte
        tokens = tokens + sizes[name][0]
        byte = byte + sizes[name][1] + len("\n\n")
    return None, tokens, byte


def _moved(before: Manifest, now: Manifest, window: Window) -> bool:
    """Return True unless cut, checkpoint, pins and first message are the same."""
    same = before.cut == now.cut and before.mark == now.mark and before.first == now.first
    return not (same and same_pins(before, now, window))


def _until(window: Window, head: int) -> int:
    """Return the number of messages for entries up to `head`, opening included."""
    rows = bisect_right(window.rows, head, key=lambda row: row.ref.seq)
    return len(window.opening.messages) + bisect_left(window.indexes.shown_by, rows)
