"""What a model said around its answer: the reasoning that open models write into the text itself, taken off.

The tags are those of the models' chat templates: `<think>` (DeepSeek R1, Qwen3, QwQ), `<thinking>` and `<reasoning>` (asked
for by prompts), `[THINK]` (Magistral). Some templates open the tag in the prompt, so that the answer has its end alone.
"""

from __future__ import annotations

import re

_OPEN = re.compile(r"\s*(?:<(think|thinking|reasoning|thought)>|\[(THINK)\])", re.IGNORECASE)
_END = re.compile(r"</(?:think|thinking|reasoning|thought)>|\[/THINK\]", re.IGNORECASE)


def strip_thinking(text: str) -> str:
    """The answer without the reasoning before it, and without blank space around; empty if the reasoning never ends.

    Tags inside the answer stay, for it may speak of them: reasoning stands at the beginning, or it has its end alone and
    the text does not begin with a heading.
    """
    at = 0
    while (opened := _OPEN.match(text, at)) is not None:
        ended = _END.search(text, opened.end())
        at = ended.end() if ended is not None else len(text)
    text = text[at:].strip()
    if not text.startswith("#") and (ended := _END.search(text)) is not None:
        text = text[ended.end() :].strip()
    return text
