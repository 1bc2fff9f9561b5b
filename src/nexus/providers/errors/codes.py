"""Codes, types and class names by which an error says what it is. They decide before any text is read.

Compared without case, underscores and a final `Error` or `Exception`, so that one entry stands for OpenAI's
`context_length_exceeded`, LiteLLM's `ContextWindowExceededError` and their like.
"""

from __future__ import annotations

import re

_FILLING = re.compile(r"[^a-z0-9]")


def plain_code(code: str) -> str:
    """The code as it is compared: lower case, letters and digits, without a final `error` or `exception`."""
    plain = _FILLING.sub("", code.lower())
    return plain.removesuffix("exception").removesuffix("error") or plain


TOO_LONG = frozenset(
    {
        "contextlengthexceeded",  # OpenAI, Azure, Groq, Cerebras
        "exceedcontextsize",  # llama.cpp: ggml-org/llama.cpp#15780
        "modelmaxprompttokensexceeded",  # GitHub Copilot
        "maxprompttokensexceeded",
        "contextwindowexceeded",  # LiteLLM
        "modelcontextwindowexceeded",  # pydantic-ai; also a stop reason
        "contextwindowoverflow",  # Strands
        "contextoverflow",  # LangChain
        "prompttoolong",  # Anthropic's advisor tool
    }
)

ZHIPU_TOO_LONG = "1261"
"""Zhipu's code for a prompt that is too long; other providers could use the number for anything."""
ZHIPU = frozenset({"", "zhipu", "zhipuai", "zai", "z.ai", "bigmodel", "glm"})

TOO_LARGE = frozenset(
    {
        "requesttoolarge",  # Anthropic, 413: more than 32 MB
        "requestbodytoolargeafterdecoding",  # Anthropic
        "contenttoolarge",  # the class of Anthropic's package
        "requestentitytoolarge",
        "payloadtoolarge",
    }
)

TOO_OFTEN = frozenset(
    {
        "ratelimit",  # Anthropic's rate_limit_error, RateLimitError of most packages
        "ratelimited",
        "ratelimitexceeded",  # OpenAI, Groq
        "ratelimitreached",
        "insufficientquota",  # OpenAI
        "quotaexceeded",
        "resourceexhausted",  # Gemini, Vertex
        "throttling",  # Bedrock
        "throttled",
        "toomanyrequests",
        "servicequotaexceeded",  # Bedrock
        "tokenquotaexceeded",  # Cerebras
        "usagelimitreached",
    }
)

ANOTHER_MATTER = frozenset(
    {
        "stringabovemaxlength",  # OpenAI: one field is too long, whatever the window
        "arrayabovemaxlength",
        "integerabovemaxvalue",
        "decimalabovemaxvalue",
        "contentfilter",
        "contentpolicyviolation",
        "responsibleaipolicyviolation",
        "modelnotfound",
        "invalidapikey",
        "imagetoolarge",
        "imagedimensionstoolarge",
    }
)

NOT_ABOUT_SIZE = frozenset({401, 402, 403, 404, 405, 408, 409})
"""Statuses whose text is not searched: keys, credit, names."""

EMPTY_IS_OVERFLOW = frozenset({"cerebras", "mistral"})
"""Providers that refuse a long prompt with 400 or 413 and nothing in the body: zhy0216/pigo `overflow.ts`."""
