"""Replies that arrive as a stream of events, of all four formats, joined into the same result as the reply without a stream.

Each format's events build the body of its complete reply, which the format's own reader reads. So the result is equal,
with or without a stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar, get_args

from msgspec.structs import replace

from nexus.errors import BadReply, BadSetting
from nexus.providers import anthropic, gemini, openai, openai_responses
from nexus.providers.chat_deltas import decoded_object, join_delta, joined_message, repeats_deltas
from nexus.providers.errors import error_text
from nexus.providers.received import as_mapping, items_of, mapping, present_fields, text_of, without_nulls
from nexus.text.as_received import ReceivedFormat
from nexus.types.message import Text, Thinking
from nexus.types.request import AgentResult
from nexus.types.stream_events import Reasoning, Token

EventT = TypeVar("EventT")
Fields = dict[str, Any]


class _Piece(NamedTuple):
    """A piece of text or thinking, and the part of the message that it continues."""

    kind: type[Token | Reasoning]
    text: str
    part: tuple[int, int] = (0, 0)
    """Numbers of the item and of the part in it."""


class _FormatEvents(Protocol):
    """One format's events so far."""

    has_ended: bool

    def add(self, event: Fields) -> Iterable[_Piece]:
        """Add the next event, and return the pieces in it."""
        ...

    def end(self) -> None:
        """Set `has_ended` if what arrived is a whole reply, although it has no end event: the server said it was all."""
        ...

    def result(self, *, partial: bool) -> AgentResult:
        """Return the reply; with `partial` without the calls that are not complete."""
        ...


class StreamReader:
    """A reply in the making: it takes the events of a provider's stream and returns them joined, as an AgentResult."""

    def __init__(self, provider: ReceivedFormat) -> None:
        """Read a stream of `openai` (chat completions), `responses`, `anthropic` or `gemini`. Raises BadSetting."""
        if provider not in _FORMATS:
            raise BadSetting(f"provider {provider!r} unknown: use {', '.join(get_args(ReceivedFormat))}")
        self._events: _FormatEvents = _FORMATS[provider]()
        self._provider: ReceivedFormat = provider
        self._whole: Fields | None = None
        self._has_choices = False
        self._error = ""
        self._last_parts: dict[type[Token | Reasoning], tuple[int, int]] = {}

    def add(self, event: object) -> tuple[Token | Reasoning, ...]:
        """Add the next event, and return the pieces of the reply's text and thinking in it.

        The joined pieces are the text of the reply's message, and its thinking with a newline between two parts. An event is
        an object of the provider's package, or its fields as a dict; the text `[DONE]` ends a stream without an end event.
        A complete reply, which some servers give to a streaming request, is the whole stream. Raises BadReply.
        """
        if isinstance(event, str) and event.removeprefix("data:").strip() == END_OF_STREAM:
            self._events.end()
            return ()
        fields = as_mapping(event)
        if fields is None:
            raise BadReply(
                f"stream event not readable: {type(event).__name__} is neither a dict nor an object of the provider's "
                "package (pass each event as the client gives it, a line of text parsed)"
            )
        try:
            failure = fields.get("error") or (fields if fields.get("type") == "error" else None)
            if failure:
                self._error = error_text(failure) or "error event"
            fields = without_nulls(fields)
            is_whole = _is_whole_reply(fields, self._provider)
            if self._provider == "openai" and fields.get("choices"):
                # Chunks with `message` in place of `delta` look like whole replies, of which there is one.
                is_whole = is_whole and not self._has_choices
                self._has_choices = True
                if is_whole:
                    self._events.add(fields)
                self._whole = None
            if is_whole:
                self._whole = fields
                pieces = _pieces_of(_READERS[self._provider].reply(fields))
            else:
                pieces = self._events.add(fields)
            return tuple(self._continued(piece) for piece in pieces if piece.text)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise BadReply(
                f"stream event not readable: {type(error).__name__}: {error} (make a new reader for each reply, for the "
                "provider that the stream is from)"
            ) from error

    def _continued(self, piece: _Piece) -> Token | Reasoning:
        """Return a piece, after the break that is between two parts of a message."""
        last = self._last_parts.get(piece.kind, piece.part)
        self._last_parts[piece.kind] = piece.part
        if piece.part == last:
            return piece.kind(piece.text)
        # Summaries of one reasoning item are paragraphs (`openai_responses`).
        is_paragraph = piece.kind is Reasoning and piece.part[0] == last[0]
        return piece.kind(f"\n\n{piece.text}" if is_paragraph else f"\n{piece.text}")

    def read(self, stream: Iterable[object]) -> Iterator[str]:
        """Add the events of a stream, and yield the pieces of the reply's text as they arrive."""
        for event in stream:
            yield from _texts(self.add(event))

    async def aread(self, stream: AsyncIterable[object]) -> AsyncIterator[str]:
        """Add the events of an asynchronous stream, and yield the pieces of the reply's text as they arrive."""
        async for event in stream:
            for text in _texts(self.add(event)):
                yield text

    def pass_events(self, stream: Iterable[EventT]) -> Iterator[EventT]:
        """Yield the events of a stream as they are, each after it was added."""
        for event in stream:
            self.add(event)
            yield event

    async def apass_events(self, stream: AsyncIterable[EventT]) -> AsyncIterator[EventT]:
        """Yield the events of an asynchronous stream as they are, each after it was added."""
        async for event in stream:
            self.add(event)
            yield event

    @property
    def is_complete(self) -> bool:
        """True if the stream had its end and no error, so that `reply` returns the whole reply."""
        return (self._events.has_ended or self._whole is not None) and not self._error

    def reply(self, *, partial: bool = False) -> AgentResult:
        """Return the whole reply, or with `partial` the part that arrived before the stream broke off.

        A partial reply has no tool call with incomplete arguments, and `aborted` as its stop reason, or `error` if the
        stream had an error. Raises BadReply if the stream did not end.
        """
        if self.is_complete and self._whole is not None:
            return _READERS[self._provider].reply(self._whole)
        if self.is_complete:
            return self._events.result(partial=False)
        if not partial:
            why = "it has no end event"
            if self._error:
                why = f"the provider reported: {self._error}"
            raise BadReply(
                f"stream not complete: {why} (repeat the call, or take what arrived: reply(partial=True); nothing was "
                "stored)",
                code="incomplete_stream",
            )
        result = self._events.result(partial=True)
        messages = tuple(message for message in result.messages if message.parts)
        reason = "error" if self._error else "aborted"
        return replace(result, messages=messages, stop_reason=reason, error=self._error or None)


def _texts(pieces: Iterable[Token | Reasoning]) -> Iterator[str]:
    """Yield the pieces of text, without pieces of thinking."""
    return (piece.text for piece in pieces if isinstance(piece, Token))


END_OF_STREAM = "[DONE]"
"""The text behind the events of a stream, as OpenAI and others end it."""

_READERS = {"openai": openai, "responses": openai_responses, "anthropic": anthropic}


def _is_whole_reply(fields: Fields, provider: ReceivedFormat) -> bool:
    """Return True for a complete reply among the events; False for Gemini, whose replies look like its events."""
    reader = _READERS.get(provider)
    return reader is not None and fields.get("object") != "chat.completion.chunk" and reader.is_reply(fields)


def _pieces_of(result: AgentResult) -> Iterator[_Piece]:
    parts = [part for message in result.messages for part in message.parts]
    for number, part in enumerate(parts):
        if isinstance(part, Text):
            yield _Piece(Token, part.text, (number, 0))
        elif isinstance(part, Thinking):
            yield _Piece(Reasoning, part.text, (number, 0))


class _ChatEvents:
    """Chunks of a chat completion: deltas of each choice, and the usage, which may come last and without a choice."""

    def __init__(self) -> None:
        self.has_ended = False
        self._body: Fields = {}
        self._choices: dict[int, Fields] = {}

    def add(self, event: Fields) -> Iterable[_Piece]:
        pieces: list[_Piece] = []
        if event.get("type") == "chunk":  # of the package's helper, which has other events beside it
            event = mapping(event.get("chunk"))
        for name in ("id", "model", "usage"):
            if event.get(name):
                self._body[name] = event[name]
        for choice in map(mapping, items_of(event.get("choices"))):
            index = choice.get("index") or 0
            state = self._choices.setdefault(index, {"index": index, "message": {"role": "assistant", "content": None}})
            delta = mapping(choice.get("delta")) or mapping(choice.get("message"))
            so_far = state["message"]
            is_end = not choice.get("delta") and bool(choice.get("finish_reason"))
            is_repeated = is_end and repeats_deltas(delta, so_far)
            if is_repeated:
                state["message"] = {name: value for name, value in so_far.items() if delta.get(name) is None}
            join_delta(state["message"], delta)
            if index == 0:
                pieces += _rest_of(delta, so_far) if is_repeated else _chat_pieces(delta)
            if choice.get("finish_reason"):
                state["finish_reason"] = choice["finish_reason"]
                self.has_ended = self.has_ended or index == 0
            for name, tokens in mapping(choice.get("logprobs")).items():
                if tokens is not None:
                    state.setdefault("logprobs", {}).setdefault(name, []).extend(items_of(tokens))
        return pieces

    def end(self) -> None:
        """Take the reply as whole if it has no call with incomplete arguments."""
        message = mapping(self._choices.get(0)).get("message", {})
        calls = message.get("tool_calls")
        self.has_ended = self.has_ended or (bool(self._choices) and (calls is None or calls.is_whole))

    def result(self, *, partial: bool) -> AgentResult:
        choices = [self._choices[index] for index in sorted(self._choices)] or [{"message": {"role": "assistant"}}]
        choices = [{**choice, "message": joined_message(choice["message"], partial=partial)} for choice in choices]
        return openai.reply({**self._body, "choices": choices})


def _chat_pieces(delta: Fields) -> list[_Piece]:
    """Return the pieces of thinking and text in a delta, whose content may be a list of parts."""
    thought = openai.text_of_reasoning(delta)
    pieces = [_Piece(Reasoning, thought), _Piece(Token, text_of(delta.get("content")))]
    for part in map(mapping, items_of(delta.get("content"))):
        if part.get("type") == "thinking":
            pieces.append(_Piece(Reasoning, openai.text_of_thinking(part)))
        else:
            pieces.append(_Piece(Token, text_of(part.get("text"))))
    return [*pieces, _Piece(Token, text_of(delta.get("refusal")), (0, 1))]


def _rest_of(message: Fields, before: Fields) -> list[_Piece]:
    """Return the piece of text in a whole message that its deltas before it lack."""
    return [_Piece(Token, text_of(message.get("content")).removeprefix(text_of(before.get("content"))))]


class _Places:
    """Numbers of blocks or items in their order, also if a server gives several the same index, or none."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._count = 0

    def begin(self, index: object, item_id: object = None) -> int:
        """Return the number of the block or item that begins."""
        number = self._count
        self._count += 1
        self._numbers.update({("index", index): number, ("id", item_id): number, "last": number})
        return number

    def of(self, index: object, item_id: object = None) -> int:
        """Return the number of the block or item that an event belongs to; one that has not begun begins."""
        if item_id is not None and ("id", item_id) in self._numbers:
            return self._numbers["id", item_id]
        if index is None and self._count and item_id is None:
            return self._numbers["last"]
        indexed = self._numbers.get(("index", index))
        if indexed is None:
            return self.begin(index, item_id)
        return indexed


_REPORTS = ("context_management", "diagnostics")
"""Fields of the last event that a message has itself."""


class _AnthropicEvents:
    """Events of the Messages API: the empty message, its blocks in deltas, and the stop reason with the usage."""

    def __init__(self) -> None:
        self.has_ended = False
        self._message: Fields = {"type": "message", "role": "assistant"}
        self._blocks: dict[int, Fields] = {}
        self._json: dict[int, str] = {}
        self._complete: set[int] = set()
        self._places = _Places()

    def add(self, event: Fields) -> Iterable[_Piece]:
        number = event.get("index")
        match event.get("type"):
            case "message_start":
                self._message = {**mapping(event["message"])}
                for block in items_of(self._message.get("content")):
                    self._blocks[self._places.begin(len(self._blocks))] = block
            case "content_block_start":
                index = self._places.begin(number)
                self._blocks[index] = {**mapping(event["content_block"])}
                return _block_pieces(self._blocks[index], index)
            case "content_block_delta":
                index = self._places.of(number)
                self._join(index, mapping(event["delta"]))
                return _block_pieces(mapping(event["delta"]), index)
            case "content_block_stop":
                self._complete.add(self._places.of(number))
            case "message_delta":
                usage = {**mapping(self._message.get("usage")), **present_fields(event.get("usage"))}
                reports = {name: event[name] for name in _REPORTS if event.get(name)}
                self._message = {**self._message, **present_fields(event.get("delta")), **reports, "usage": usage}
            case "message_stop":
                self.has_ended = True
            case _:
                pass
        return ()

    def end(self) -> None:
        """Take the reply as whole if it has its stop reason."""
        self.has_ended = self.has_ended or bool(self._message.get("stop_reason"))

    def _join(self, index: int, delta: Fields) -> None:
        block = self._blocks[index]
        for name, value in delta.items():
            match name:
                case "type":
                    pass
                case "partial_json":
                    self._json[index] = self._json.get(index, "") + text_of(value)
                case "citation":
                    block["citations"] = [*items_of(block.get("citations")), value]
                case _ if value is None:
                    pass
                case _ if isinstance(value, str):
                    block[name] = text_of(block.get(name)) + value
                case _:
                    block[name] = value

    def result(self, *, partial: bool) -> AgentResult:
        blocks: list[Fields] = []
        answered = {block.get("tool_use_id") for block in self._blocks.values()}
        for index in sorted(self._blocks):
            block = self._blocks[index]
            kind = text_of(block.get("type"))
            if partial and kind not in ("text", "thinking"):
                is_open = kind.endswith("server_tool_use") or kind == "mcp_tool_use"
                if index not in self._complete or (is_open and block.get("id") not in answered):
                    continue
            if index in self._json:
                text = self._json[index]
                if text:
                    value = decoded_object(text)
                else:
                    value = mapping(block.get("input"))
                block = {**block, "input": text if value is None else value}
            blocks.append(block)
        return anthropic.reply({**self._message, "content": blocks})


def _block_pieces(fields: Fields, index: int) -> Iterable[_Piece]:
    kind = fields.get("type")
    if kind in ("thinking", "thinking_delta"):
        return (_Piece(Reasoning, text_of(fields.get("thinking")), (index, 0)),)
    if kind in ("text", "text_delta"):
        return (_Piece(Token, text_of(fields.get("text")), (index, 0)),)
    return ()


class _ResponsesEvents:
    """Events of the Responses API. The last has the whole response; until then it is its items, done or in deltas."""

    def __init__(self) -> None:
        self.has_ended = False
        self._response: Fields = {}
        self._items: dict[int, Fields] = {}
        self._done: set[int] = set()
        self._streamed: set[int] = set()
        """Items whose pieces were returned."""
        self._places = _Places()

    def add(self, event: Fields) -> Iterable[_Piece]:
        kind = text_of(event.get("type"))
        delta = text_of(event.get("delta"))
        number = event.get("output_index")
        item_id = event.get("item_id") or mapping(event.get("item")).get("id")
        match kind:
            case "response.completed" | "response.incomplete" | "response.failed":
                self._response = {**mapping(event["response"])}
                self.has_ended = True
                if self._streamed:
                    return ()
                output = enumerate(map(mapping, items_of(self._response.get("output"))))
                return [piece for number, item in output for piece in self._whole_item(number, item)]
            case "response.created" | "response.in_progress" | "response.queued":
                self._response = {**mapping(event["response"])}
            case "response.output_item.added":
                self._items[self._places.begin(number, item_id)] = {**mapping(event["item"])}
            case "response.output_item.done":
                index = self._places.of(number, item_id)
                if index in self._done and self._items[index].get("id") != item_id:
                    index = self._places.begin(number, item_id)
                self._items[index] = {**mapping(event["item"])}
                self._done.add(index)
                return self._whole_item(index, self._items[index])
            case "response.output_text.delta" | "response.refusal.delta":
                index = self._places.of(number, item_id)
                texts = self._items[index].setdefault("_texts", {})
                part = event.get("content_index", 0)
                if "refusal" in kind:
                    texts.setdefault(part, {"type": "refusal", "refusal": ""})["refusal"] += delta
                else:
                    texts.setdefault(part, {"type": "output_text", "text": ""})["text"] += delta
                self._streamed.add(index)
                return (_Piece(Token, delta, (index, part)),)
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                index = self._places.of(number, item_id)
                part = event.get("content_index", event.get("summary_index", 0))
                self._streamed.add(index)
                return (_Piece(Reasoning, delta, (index, part)),)
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                item = self._items[self._places.of(number, item_id)]
                key = "input" if "input" in kind else "arguments"
                item[key] = text_of(item.get(key)) + delta
            case _:
                pass
        return ()

    def end(self) -> None:
        """Take the reply as whole if all of its items are."""
        self.has_ended = self.has_ended or (bool(self._items) and self._done == self._items.keys())

    def _whole_item(self, index: int, item: Fields) -> list[_Piece]:
        """Return the pieces of an item that came without deltas, as some servers send reasoning."""
        kinds: dict[str, type[Token | Reasoning]] = {"message": Token, "reasoning": Reasoning}
        kind = kinds.get(text_of(item.get("type")))
        if kind is None or index in self._streamed:
            return []
        self._streamed.add(index)
        parts = map(mapping, items_of(item.get("content")) or items_of(item.get("summary")))
        texts = enumerate(text_of(part.get("text")) or text_of(part.get("refusal")) for part in parts)
        return [_Piece(kind, text, (index, number)) for number, text in texts]

    def result(self, *, partial: bool) -> AgentResult:
        items: list[Fields] = []
        for index in sorted(self._items):
            item = self._items[index]
            is_call = item.get("type") in ("function_call", "custom_tool_call")
            if index in self._done or (is_call and not partial):
                items.append(item)
            elif item.get("type") == "message" and item.get("_texts"):
                streamed = {**item}
                texts = streamed.pop("_texts")
                streamed["content"] = [texts[number] for number in sorted(texts)]
                items.append(streamed)
        if partial:
            body = {**self._response, "object": "response", "status": "incomplete", "output": items}
            return openai_responses.reply({**body, "incomplete_details": {"reason": "aborted"}})
        # Some servers leave the items out of their last event.
        body = {"object": "response", **self._response, "output": self._response.get("output") or items}
        if body.get("status") in (None, "queued", "in_progress"):
            body["status"] = "completed"
        return openai_responses.reply(body)


class _GeminiEvents:
    """Chunks of a generated content: parts to append, and usage so far."""

    def __init__(self) -> None:
        self.has_ended = False
        self._body: Fields = {}
        self._candidates: dict[int, Fields] = {}

    def add(self, event: Fields) -> Iterable[_Piece]:
        pieces: list[_Piece] = []
        fields = gemini.in_snake_case(event)
        usage = mapping(self._body.get("usage_metadata"))
        usage = usage | gemini.in_snake_case(present_fields(fields.get("usage_metadata")))
        body = present_fields(fields)
        body.pop("candidates", None)
        self._body |= {**body, "usage_metadata": usage}
        if gemini.in_snake_case(fields.get("prompt_feedback")).get("block_reason"):
            self.has_ended = True
        for candidate in map(gemini.in_snake_case, items_of(fields.get("candidates"))):
            index = candidate.get("index") or 0
            state = self._candidates.setdefault(index, {"content": {"role": "model", "parts": []}})
            parts: list[Fields] = state["content"]["parts"]
            for part in items_of(mapping(candidate.get("content")).get("parts")):
                part_fields = present_fields(gemini.in_snake_case(part))
                _append_part(parts, part_fields)
                if index == 0:
                    kind = Reasoning if part_fields.get("thought") else Token
                    pieces.append(_Piece(kind, text_of(part_fields.get("text")), (len(parts), 0)))
            other_fields = present_fields(candidate)
            other_fields.pop("content", None)
            state.update(other_fields)
            if candidate.get("finish_reason"):
                self.has_ended = self.has_ended or index == 0
        return pieces

    def end(self) -> None:
        """Take what arrived as the whole reply."""
        self.has_ended = self.has_ended or bool(self._candidates)

    def result(self, *, partial: bool) -> AgentResult:
        del partial  # calls arrive whole
        candidates = [self._candidates[index] for index in sorted(self._candidates)]
        return gemini.reply({**self._body, "candidates": candidates})


def _append_part(parts: list[Fields], part: Fields) -> None:
    """Append a part, to the last one if both are text of one kind. A signature ends a text."""
    call = gemini.in_snake_case(part.get("function_call"))
    if call.get("partial_args") or call.get("will_continue"):
        raise ValueError("function arguments in pieces (turn off `stream_function_call_arguments`)")
    last = parts[-1] if parts else {}
    texts = isinstance(last.get("text"), str) and isinstance(part.get("text"), str)
    if texts and bool(last.get("thought")) == bool(part.get("thought")) and not last.get("thought_signature"):
        parts[-1] = {**last, **part, "text": last["text"] + part["text"]}
    else:
        parts.append(part)


_FORMATS: dict[str, type[_FormatEvents]] = {
    "openai": _ChatEvents,
    "responses": _ResponsesEvents,
    "anthropic": _AnthropicEvents,
    "gemini": _GeminiEvents,
}
