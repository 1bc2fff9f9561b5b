"""Conversations in the four formats, in every form that their APIs allow, and random ones of all kinds of parts."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

OTHER_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def user(content: Any, **fields: Any) -> Json:
    return {"role": "user", "content": content, **fields}


def answer(content: Any, **fields: Any) -> Json:
    return {"role": "assistant", "content": content, **fields}


def text(value: str, **fields: Any) -> Json:
    return {"type": "text", "text": value, **fields}


def chat_call(call_id: str, arguments: str = "{}") -> Json:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}


def chat_result(content: Any, call_id: str = "c1") -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def calls(*made: Json, content: Any = None) -> Json:
    return answer(content, tool_calls=[*made])


def picture(detail: str) -> Json:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": detail}}


CUSTOM = {"id": "c1", "type": "custom", "custom": {"name": "sh", "input": "ls"}}

OPENAI: dict[str, list[Json]] = {
    "plain": [user("hi"), answer("hello"), user("next")],
    "system in the middle": [user("hi"), answer("hello"), {"role": "system", "content": "be brief"}, user("next")],
    "developer first": [{"role": "developer", "content": "dev"}, user("hi")],
    "two users": [user("a"), user("b")],
    "names": [user("hi", name="petra")],
    "image": [user([text("what?"), picture("low")])],
    "audio": [user([text("what?"), {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}])],
    "file": [user([text("read"), {"type": "file", "file": {"file_id": "file-1"}}])],
    "tool round": [user("go"), calls(chat_call("c1", '{"a": 1}')), chat_result("ok")],
    "result as parts": [user("go"), calls(chat_call("c1"), content=""), chat_result([text("ok"), text("more")])],
    "empty result": [user("go"), calls(chat_call("c1")), chat_result("")],
    "tool then user": [user("go"), calls(chat_call("c1")), chat_result("ok"), user("and?")],
    "bad arguments": [user("go"), calls(chat_call("c1", '{"a": ')), chat_result("bad")],
    "prefill": [user("go"), answer("The answer is")],
    "reasoning": [user("go"), answer("x", reasoning_content="hmm"), user("n")],
    "whitespace": [user("  hi \n"), answer("ok\n\n"), user("\tnext ")],
    "empty assistant": [user("go"), answer(""), user("n")],
    "custom tool": [user("go"), calls(CUSTOM), chat_result("ok")],
    "large result": [user("go"), calls(chat_call("c1")), chat_result("line of text here\n" * 9000)],
    "only system": [{"role": "system", "content": "s"}],
    "texts": [user([text("a"), text("b")])],
    "lone surrogates": [user("a\x00b\u202e\ud83d\ude00")],
    "refusal": [user("go"), answer(None, refusal="no"), user("n")],
    "tags": [user("[SHARED_MEMORY]\n<system-reminder>x</system-reminder> # Session context"), answer("ok"), user("n")],
}


def use(call_id: str, arguments: Json | None = None, name: str = "f", **fields: Any) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments or {}, **fields}


def result(call_id: str, content: Any = "ok", **fields: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "doc"}}
CITED = {
    "type": "char_location", "cited_text": "d", "document_index": 0, "document_title": None, "start_char_index": 0,
    "end_char_index": 1,
}  # fmt: skip
SEARCH = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
]
BLOCK_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}

ANTHROPIC: dict[str, list[Json]] = {
    "plain": [user("hi"), answer("hello"), user("next")],
    "blocks": [user([text("<system-reminder>r</system-reminder>"), text("hi", cache_control={"type": "ephemeral"})])],
    "thinking": [
        user("go"), answer([{"type": "thinking", "thinking": "t", "signature": "s"}, use("t1")]), user([result("t1")]),
    ],
    "redacted": [user("go"), answer([{"type": "redacted_thinking", "data": "xx"}, use("t1")]), user([result("t1")])],
    "result and text": [user("go"), answer([use("t1")]), user([result("t1"), text("<system-reminder>t</system-reminder>")])],
    "result and text, later": [user("go"), answer([use("t1")]), user([result("t1"), text("n")]), answer("k"), user("n")],
    "parallel": [user("go"), answer([use("t1"), use("t2")]), user([result("t2"), result("t1", is_error=True)])],
    "image result": [user("go"), answer([use("t1")]), user([result("t1", [BLOCK_IMAGE])])],
    "document": [user([{**DOCUMENT, "title": "T", "citations": {"enabled": True}}, text("read")])],
    "document earlier": [user([DOCUMENT, text("read")]), answer("k"), user("n")],
    "server tool": [user("go"), answer([*SEARCH, text("found")]), user("n")],
    "server tool alone": [user("go"), answer(SEARCH), user("n")],
    "citations": [user("go"), answer([text("x", citations=[CITED])]), user("n")],
    "two users": [user("a"), user("b")],
    "system in the middle": [user("go"), answer("k"), user("n"), {"role": "system", "content": "new instruction"}],
    "prefill": [user("go"), answer("The answer:")],
    "tool reference": [
        user("go"), answer([use("t1", name="ToolSearch")]), user([result("t1", [{"type": "tool_reference", "tool_name": "x"}])]),
    ],
    "compaction": [user("go"), answer([{"type": "compaction", "content": "summary"}, text("k")]), user("n")],
    "result without content": [user("go"), answer([use("t1")]), user([{"type": "tool_result", "tool_use_id": "t1"}])],
}  # fmt: skip


def typed(role: str, *content: Json, **fields: Any) -> Json:
    return {"type": "message", "role": role, "content": [*content], **fields}


def input_text(value: str) -> Json:
    return {"type": "input_text", "text": value}


def output_text(value: str) -> Json:
    return {"type": "output_text", "text": value, "annotations": []}


def function_call(call_id: str = "c1", **fields: Any) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": '{"a": 1}', **fields}


def output(value: Any = "ok", call_id: str = "c1", kind: str = "function_call_output") -> Json:
    return {"type": kind, "call_id": call_id, "output": value}


REASONING = {
    "type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "c2VhbGVk",
}  # fmt: skip
INPUT_IMAGE = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "low"}
CUSTOM_CALL = {"type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": "ls"}
WEB_SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "x"},
}
COMPUTER = {
    "type": "computer_call", "id": "cu_1", "call_id": "c9", "action": {"type": "screenshot"}, "pending_safety_checks": [],
    "status": "completed",
}  # fmt: skip
SCREEN = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"}
DONE = {"id": "msg_1", "status": "completed"}

RESPONSES: dict[str, list[Json]] = {
    "plain": [user("hi"), answer("hello"), user("n")],
    "typed": [typed("user", input_text("hi")), typed("assistant", output_text("k"), **DONE), typed("user", input_text("n"))],
    "reasoning": [user("go"), REASONING, function_call(), output(), user("n")],
    "reasoning, text and call with ids": [
        user("go"), REASONING, typed("assistant", output_text("k"), **DONE), function_call(id="fc_1", status="completed"),
        output(), user("n"),
    ],
    "reasoning without its content": [user("go"), {**REASONING, "encrypted_content": None}, answer("x"), user("n")],
    "image": [typed("user", input_text("w"), INPUT_IMAGE)],
    "file": [typed("user", input_text("w"), {"type": "input_file", "file_id": "file-1"})],
    "custom tool": [user("go"), CUSTOM_CALL, output(kind="custom_tool_call_output")],
    "web search": [user("go"), WEB_SEARCH, typed("assistant", output_text("k"), **DONE), user("n")],
    "web search alone": [user("go"), WEB_SEARCH, user("n")],
    "computer": [user("go"), COMPUTER, output(SCREEN, "c9", "computer_call_output"), user("n")],
    "result as list": [user("go"), function_call(), output([input_text("a"), INPUT_IMAGE])],
    "empty result": [user("go"), function_call(), output("")],
    "developer in the middle": [user("go"), answer("k"), {"role": "developer", "content": "be brief"}, user("n")],
    "phase": [user("go"), typed("assistant", output_text("k"), phase="commentary", **DONE), user("n")],
    "parallel": [user("go"), function_call("c1"), function_call("c2"), output(call_id="c2"), output(call_id="c1")],
    "refusal": [user("go"), typed("assistant", {"type": "refusal", "refusal": "no"}, **DONE), user("n")],
    "item reference": [user("go"), {"type": "item_reference", "id": "msg_1"}, user("n")],
    "compaction first": [{"type": "compaction", "id": "cmp_1", "encrypted_content": "xx"}, user("n")],
}  # fmt: skip


def content(role: str, *parts: Json) -> Json:
    return {"role": role, "parts": [*parts]}


def called(name: str = "f", arguments: Json | None = None, call_id: str = "") -> Json:
    return {**({"id": call_id} if call_id else {}), "name": name, "args": arguments or {}}


def part(value: str, **fields: Any) -> Json:
    return {"text": value, **fields}


INLINE = {"inline_data": {"mime_type": "image/png", "data": PNG}}

GEMINI: dict[str, list[Json]] = {
    "plain": [content("user", part("hi")), content("model", part("k")), content("user", part("n"))],
    "calls without ids": [
        content("user", part("go")),
        content("model", {"function_call": called("f", {"a": 1}), "thought_signature": "c2ln"}, {"function_call": called("g")}),
        content(
            "user",
            {"function_response": {"name": "f", "response": {"result": "x"}}},
            {"function_response": {"name": "g", "response": {"a": 1}}},
        ),
    ],
    "thoughts": [
        content("user", part("go")),
        content("model", part("hm", thought=True), part("k", thought_signature="c2ln")),
        content("user", part("n")),
    ],
    "image and audio": [content("user", part("go"), INLINE, {"inline_data": {"mime_type": "audio/wav", "data": "AAAA"}})],
    "file": [content("user", {"file_data": {"file_uri": "gs://x", "mime_type": "application/pdf"}}, part("go"))],
    "video": [content("user", {"file_data": {"file_uri": "https://v.example/x"}, "video_metadata": {"fps": 1}}, part("go"))],
    "code": [
        content("user", part("go")),
        content(
            "model",
            {"executable_code": {"code": "1+1", "language": "PYTHON"}},
            {"code_execution_result": {"outcome": "OUTCOME_OK", "output": "2"}},
            part("2"),
        ),
        content("user", part("n")),
    ],
    "image of the model": [
        content("user", part("go")), content("model", {**INLINE, "thought_signature": "c2ln"}), content("user", part("n")),
    ],
    "result and text": [
        content("user", part("go")),
        content("model", {"function_call": called()}),
        content("user", {"function_response": {"name": "f", "response": {"output": "x"}}}, part("and")),
    ],
    "two users": [content("user", part("a")), content("user", part("b"))],
    "camel case": [
        content("user", part("go")),
        content("model", {"functionCall": called("f", {"aB": 1}, "c"), "thoughtSignature": "c2ln"}),
        content("user", {"functionResponse": {"id": "c", "name": "f", "response": {"output": "x"}}}),
    ],
}  # fmt: skip

CASES = {"openai": OPENAI, "responses": RESPONSES, "anthropic": ANTHROPIC, "gemini": GEMINI}


def as_its_rules_have_it(provider: str, items: list[Any]) -> list[Any]:
    """Items as they are sent: what a body of the format has in another form that says the same.

    Anthropic's text contents are one block, without `is_error` where it is false, and breakpoints are placed anew. In Anthropic's and Gemini's format messages
    of one role in a row are one, and Gemini's names are in snake case.
    """
    if provider in ("openai", "responses"):
        return items
    key = "content" if provider == "anthropic" else "parts"
    joined: list[Any] = []
    for item in json.loads(json.dumps(items)):
        blocks = [text(item[key])] if isinstance(item[key], str) else item[key]
        blocks = [{k: v for k, v in block.items() if k != "cache_control"} for block in blocks]
        if joined and joined[-1]["role"] == item["role"]:
            joined[-1][key] += blocks
        else:
            joined.append({**item, key: blocks})
    return joined


# Random conversations

_texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30).filter(lambda value: value.strip())
_any_text = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
_scalars = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), _any_text)
_objects = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.one_of(_scalars, st.lists(_scalars, max_size=2)), max_size=3
)
_base64 = st.sampled_from([PNG, OTHER_PNG])
_urls = st.sampled_from(["https://example.org/a.png", f"data:image/png;base64,{PNG}"])
_details = st.sampled_from([{}, {"detail": "low"}, {"detail": "auto"}])


def _results(call: str) -> st.SearchStrategy[Any]:
    """A result with any content; one that reports an error has text alone, without which the API refuses it."""
    return st.one_of(
        (_texts | _blocks | st.just("")).map(lambda content: result(call, content)),
        _texts.map(lambda content: result(call, content, is_error=True)),
    )


def _some(*kinds: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.one_of(*kinds), min_size=1, max_size=most)


_chat_parts = _some(
    _texts.map(text),
    st.builds(lambda url, detail: {"type": "image_url", "image_url": {"url": url, **detail}}, _urls, _details),
    _base64.map(lambda data: {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}),
    _base64.map(lambda data: {"type": "file", "file": {"filename": "a.pdf", "file_data": data}}),
)
_input_parts = _some(
    _texts.map(input_text),
    st.builds(lambda url, detail: {"type": "input_image", "image_url": url, **detail}, _urls, _details),
    st.just({"type": "input_image", "file_id": "file-2"}),
    _base64.map(lambda data: {"type": "input_file", "filename": "a.pdf", "file_data": data}),
)
_blocks = _some(
    _texts.map(text),
    _base64.map(lambda data: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}),
    st.just({"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}),
    st.just({"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
    _texts.map(lambda value: {**DOCUMENT, "title": value}),
)
_gemini_parts = _some(
    _texts.map(part),
    st.builds(
        lambda kind, data: {"inline_data": {"mime_type": kind, "data": data}},
        st.sampled_from(["image/png", "audio/wav"]),
        _base64,
    ),
    st.just({"file_data": {"file_uri": "gs://x", "mime_type": "image/png"}}),
    st.just({"file_data": {"file_uri": "gs://y"}, "video_metadata": {"fps": 1}}),
)
_arguments = _objects.map(lambda value: json.dumps(value, ensure_ascii=False))


@st.composite
def conversations(draw: st.DrawFn, provider: str) -> list[Any]:
    """Up to three questions with their answers, tool rounds among them, and a last question."""
    items: list[Any] = []
    for turn in range(draw(st.integers(1, 3))):
        items += [_question(draw, provider)]
        if draw(st.booleans()):
            ids = [f"c{turn}_{number}" for number in range(draw(st.integers(1, 2)))]
            items += _round(draw, provider, ids)
        items += _answer(draw, provider)
    return [*items, _question(draw, provider)]


def _question(draw: st.DrawFn, provider: str) -> Json:
    match provider:
        case "openai":
            return user(draw(_texts | _chat_parts), **draw(st.sampled_from([{}, {"name": "petra"}])))
        case "responses":
            kind = draw(st.sampled_from([{}, {"type": "message"}]))
            return {**kind, **user(draw(_texts | _input_parts))}
        case "anthropic":
            return user(draw(_texts | _blocks))
        case _:
            return content("user", *draw(_gemini_parts))


def _answer(draw: st.DrawFn, provider: str) -> list[Json]:
    value = draw(_texts)
    match provider:
        case "openai":
            forms = [
                answer(value), answer([text(value)]), answer(None, refusal=value), answer([{"type": "refusal", "refusal": value}]),
                answer(value, reasoning_content="hm"), answer(None, audio={"id": "audio_1"}), answer(value, name="b"),
            ]  # fmt: skip
            return [draw(st.sampled_from(forms))]
        case "responses":
            said = draw(
                st.sampled_from(
                    [answer(value), typed("assistant", output_text(value), **DONE), answer([output_text(value)])]
                )
            )
            before = draw(st.lists(st.sampled_from([REASONING, WEB_SEARCH, {**WEB_SEARCH, "id": "ws_2"}]), max_size=2))
            return [*before, said]
        case "anthropic":
            thought = [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
            ]
            cited = text(value, citations=[CITED])
            rest = draw(st.sampled_from([[text(value)], [cited], [*SEARCH, cited], [cited, text("b")], SEARCH]))
            return [answer(draw(st.sampled_from([value, [*draw(st.sampled_from([[], thought])), *rest]])))]
        case _:
            forms = [
                [part(value)], [part("hm", thought=True), part(value)], [part(value, thought_signature="c2ln")],
                [{"executable_code": {"code": "1", "language": "PYTHON"}}], [part(value), INLINE], [INLINE],
            ]  # fmt: skip
            return [content("model", *draw(st.sampled_from(forms)))]


def _round(draw: st.DrawFn, provider: str, ids: list[str]) -> list[Json]:
    match provider:
        case "openai":
            custom = draw(st.booleans())
            made = [{**CUSTOM, "id": one} if custom else chat_call(one, draw(_arguments)) for one in ids]
            results = [chat_result(draw(_any_text | _texts.map(lambda t: [text(t), text("b")])), one) for one in ids]
            return [calls(*made, content=draw(st.none() | _texts)), *results]
        case "responses":
            custom = draw(st.booleans())
            kind = "custom_tool_call_output" if custom else "function_call_output"
            fields = draw(st.sampled_from([{}, {"id": "fc_1", "status": "completed"}]))
            made = [{**CUSTOM_CALL, "call_id": one} if custom else function_call(one, **fields) for one in ids]
            return [REASONING, *made, *(output(draw(_any_text | _input_parts), one, kind) for one in ids)]
        case "anthropic":
            made = [
                use(
                    one,
                    draw(_objects),
                    **draw(st.sampled_from([{}, {"caller": {"type": "code_execution_20260120", "tool_id": "x"}}])),
                )
                for one in ids
            ]
            results = [draw(_results(one)) for one in ids]
            return [answer([*draw(st.sampled_from([[], [text("I look.")]])), *made]), user(results)]
        case _:
            named = draw(st.booleans())
            signed = draw(st.sampled_from([{}, {"thought_signature": "c2ln"}]))
            made = [
                {"function_call": called(f"f{n}", draw(_objects), one if named else ""), **signed}
                for n, one in enumerate(ids)
            ]
            results = [
                {"function_response": {**({"id": one} if named else {}), "name": f"f{n}", "response": draw(_objects)}}
                for n, one in enumerate(ids)
            ]
            return [content("model", *made), content("user", *results)]
