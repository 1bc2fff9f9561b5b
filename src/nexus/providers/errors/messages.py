"""Codes and message patterns of provider errors. Codes are compared first, then texts.

Codes, types and class names are compared without case, underscores and a final `Error` or `Exception`, so that one entry
covers OpenAI's `context_length_exceeded`, LiteLLM's `ContextWindowExceededError` and similar names.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from msgspec import Struct

TooMuch: TypeAlias = Literal["", "input", "output", "bytes"]
"""The part of a request that is too large."""

_FILLING = re.compile(r"[^a-z0-9]")


def normalize_code(code: str) -> str:
    """Return the code for comparison: lower case, letters and digits, without a final `error` or `exception`."""
    plain = _FILLING.sub("", code.lower())
    return plain.removesuffix("exception").removesuffix("error") or plain


TOO_LONG_CODES = frozenset(
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

TOO_LARGE_CODES = frozenset(
    {
        "requesttoolarge",  # Anthropic, 413: more than 32 MB
        "requestbodytoolargeafterdecoding",  # Anthropic
        "contenttoolarge",  # the class of Anthropic's package
        "requestentitytoolarge",
        "payloadtoolarge",
    }
)

RATE_LIMIT_CODES = frozenset(
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

UNRELATED_CODES = frozenset(
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
"""Statuses whose text is not searched: keys, credit, unknown names."""

EMPTY_IS_OVERFLOW = frozenset({"cerebras", "mistral"})
"""Providers that reject a long prompt with 400 or 413 and an empty body: zhy0216/pigo `overflow.ts`."""


NUMBER = r"\d{1,3}(?:[,._ ]\d{3}){1,3}(?!\d)|\d{1,12}(?:\.0)?(?:k\b)?(?!\d)"
_PLACE = re.compile(r"(?<!\?P)<(\w+)>")
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://\S+")
_QUOTES = str.maketrans(dict.fromkeys("'\"`’‘“”\\", ""))


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(_PLACE.sub(lambda match: rf"\(?(?P<{match[1]}>{NUMBER})\)?", text))


class Rule(Struct, frozen=True):
    """A pattern of an error message, the part that is too large, and the subject of its limit."""

    name: str
    pattern: re.Pattern[str]
    part: TooMuch = "input"
    limit_of: Literal["window", "input"] = "window"


def _rule(
    name: str, text: str, part: TooMuch = "input", limit_of: Literal["window", "input"] = "window"
) -> tuple[Rule, ...]:
    return (Rule(name, _pattern(text), part, limit_of),)


def normalize_error_text(text: str) -> str:
    """Return the text for comparison: lower case, without addresses, quotes and escapes."""
    text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text).replace("\\n", " ").translate(_QUOTES)
    return " ".join(_ADDRESS.sub(" ", text).lower().split())


def parse_number(digits: str | None) -> int:
    """Return the value of a number with separators or a final `k`; 0 for None."""
    if not digits:
        return 0
    thousands = 1000 if digits.endswith("k") else 1
    digits = digits.removesuffix("k").removesuffix(".0")
    return int("".join(digit for digit in digits if digit.isdecimal())) * thousands


OVERFLOW: tuple[Rule, ...] = (
    # Input and answer together. docker/docker-agent#569, anthropics/claude-code#228
    *_rule(
        "anthropic-output",
        r"input length and max_tokens exceed context limit(?:: <input> ?\+ ?<output> > <limit>)?",
        "output",
    ),
    # vLLM 0.11: canfieldjuan/finetunelab.ai docs/MAX_TOKENS_CONTEXT_OVERFLOW_FIX.md
    *_rule(
        "vllm-output",
        r"is too large: <output>\. this models maximum context length is <limit> tokens and your request has <input>",
        "output",
    ),
    *_rule(
        "vllm-setting",  # the answer alone is larger than the window; also TensorRT-LLM
        r"max_(?:completion_)?tokens=<output> cannot be greater than max_model_len=(?:max_total_tokens=)?<limit>",
        "output",
    ),
    # Text Generation Inference, Together: huggingface/chat-ui#1149, stanford-crfm/helm#2079
    *_rule(
        "tgi-output",
        r"inputs tokens \+ max_new_tokens must be <= <limit>(?:\. given: <input> inputs tokens and <output>)?",
        "output",
    ),
    *_rule("tgi-input", r"inputs must have less than <limit> tokens\. given: <input>", "input", "input"),
    # OpenAI chat and completions, Azure, DeepSeek, OpenRouter, SGLang, vLLM up to 0.25, Llama on Bedrock:
    # vllm-project/vllm#20409, #42474; evalstate/fast-agent#621; refly-ai/refly#1177; huggingface/smolagents#1719
    *_rule("maximum-context-length", r"maximum context length (?:is |of |was )<limit>"),
    # Anthropic, also on Bedrock and Vertex: anthropics/claude-code#12186, daisuke-awaji/moca#254
    *_rule("anthropic-prompt", r"prompt is too long(?:: <requested> tokens > <limit> maximum)?"),
    # OpenAI large models
    *_rule("openai-input", r"input tokens exceed the configured limit(?: of <limit>)?", "input", "input"),
    # Gemini API and Vertex: google-gemini/gemini-cli#6678, #22609; googleapis/python-genai#2466
    *_rule(
        "gemini-input",
        r"input token count (?:<requested> )?exceeds the maximum number of tokens allowed(?: <limit>)?",
        "input",
        "input",
    ),
    # Vertex, as other programs quote it
    *_rule(
        "vertex-input", r"token count is <requested> but (?:the )?model only supports up to <limit>", "input", "input"
    ),
    *_rule("gemini-upload", r"\bnumber of tokens allowed(?: <limit>)?", "input", "input"),
    # Bedrock: aws-samples/bedrock-chat#95; litellm `exception_mapping_utils.py`
    *_rule("bedrock-input", r"input is too long for requested model"),
    *_rule("bedrock-nova", r"input tokens exceeded"),
    *_rule(
        "bedrock-titan",
        r"too many input tokens(?:\. max input tokens: <limit>(?:, request input token count: <requested>)?)?",
        "input",
        "input",
    ),
    # xAI: cline/cline#3120
    *_rule(
        "xai-prompt",
        r"maximum prompt length is <limit>(?: tokens)?(?: but the request contains <requested>)?",
        "input",
        "input",
    ),
    # Cerebras and Groq: cline/cline#5140, OpenHands/OpenHands#1902
    *_rule("cerebras-length", r"current length is <requested> while limit is <limit>"),
    *_rule("reduce-messages", r"reduce the length of the (?:input )?(?:messages|prompt)"),
    # SGLang, Together: sgl-project/sglang#8096; poolside
    *_rule("sglang-input", r"the input <requested>(?: tokens\))? is longer than the models? context length <limit>"),
    *_rule(
        "sglang-length", r"input length <requested> exceeds (?:the )?(?:models? )?(?:maximum )?context length <limit>"
    ),
    *_rule(
        "input-length",
        r"input length <requested> exceeds the maximum allowed input length of <limit>",
        "input",
        "input",
    ),
    # vLLM before 0.5 and the first of its V1: vllm-project/vllm#12165, #525, #12600
    *_rule(
        "vllm-old",
        r"(?:total length <requested> )?is too long to fit into the model(?: \(context length <limit>)?",
    ),
    *_rule("vllm-v1", r"prompt length of <requested> is longer than the maximum model length of <limit>"),
    *_rule(
        "vllm-scheduler",
        r"input prompt <requested>(?: tokens\))? is too long and exceeds (?:the )?(?:capacity|limit) of <limit>",
    ),
    # llama.cpp and llama-cpp-python: ggml-org/llama.cpp#15780; fedora-copr/logdetective-website#193
    *_rule(
        "llamacpp-request",
        r"(?:request <requested>(?: tokens\))? )?exceeds the available context size(?: <limit>)?",
    ),
    *_rule("llamacpp-context", r"context size has been exceeded"),
    *_rule("llamacpp-keep", r"n_keep <requested> >= n_ctx <limit>"),
    *_rule("llamacpp-python", r"requested tokens (?:<requested> )?exceeds? context window of <limit>"),
    # LM Studio: lmstudio-ai/lmstudio-bug-tracker#546, #2205
    *_rule(
        "lmstudio-keep",
        r"keep the first <requested> tokens when context the overflows\. "
        r"however, the model is loaded with context length of only <limit>",
    ),
    *_rule("lmstudio-initial", r"greater than the context length"),
    # GitHub Copilot, MiniMax, Kimi: zhy0216/pigo `overflow.ts`
    *_rule("copilot-prompt", r"prompt token count of <requested> exceeds the limit of <limit>", "input", "input"),
    *_rule("minimax-window", r"context window exceeds limit"),
    *_rule("kimi-limit", r"exceeded model token limit(?:: <limit>(?: \(requested: <requested>)?)?"),
    # Mistral
    *_rule(
        "mistral-prompt",
        r"(?:contains <requested> tokens[^.]{0,40}, )?too large for model with <limit> maximum context length",
    ),
    # Ollama
    *_rule("ollama-prompt", r"prompt too long; exceeded (?:max )?context length(?: by <over> tokens)?"),
    *_rule("ollama-input", r"input (?:length )?exceeds (?:the |maximum )?context length"),
    *_rule("configured-size", r"prompt has <requested> tokens?, but the configured context size is <limit>"),
    # Cohere says it at the very beginning; Bedrock's throttling says it elsewhere
    *_rule("cohere-tokens", r"^too many tokens"),
    # Qwen: QwenLM/qwen-code#98
    *_rule("qwen-range", r"range of input length should be \[1, ?<limit>\]", "input", "input"),
    # Zhipu, and gateways in Chinese
    *_rule("zhipu-prompt", r"prompt ?超长"),
    *_rule("chinese-length", r"(?:输入|上下文|提示词)[^,.，。]{0,16}(?:超长|过长|超出|超过)"),
    *_rule("ark-messages", r"exceeds? max message tokens"),
    # Sizes in bytes: Anthropic 413, Gemini 400
    *_rule("anthropic-bytes", r"request exceeds the maximum (?:allowed )?(?:size|number of bytes)", "bytes"),
    *_rule("gemini-bytes", r"request payload size exceeds the limit", "bytes"),
    *_rule("http-413", r"request entity too large|payload too large|content too large|body too large", "bytes"),
    # General: OpenAI Responses ("Your input exceeds the context window of this model") and many gateways
    *_rule("context-window-is", r"context window is <limit>(?: tokens)?, you requested <requested>"),
    *_rule(
        "exceeds-context",
        r"exceed(?:s|ed)? (?:the )?(?:models? )?(?:maximum )?context[ _](?:window|length|limit|size)(?: (?:of )?<limit>)?",
    ),
    *_rule(
        "context-exceeded",
        r"context[ _](?:length|window|size|limit)[ _](?:of <limit>(?: tokens)? )?(?:is |was |has been )?exceeded",
    ),
    *_rule("context-only", r"context length is only <limit> tokens"),
    # Gemini API documentation, "Troubleshooting": "Your input context is too long."
    *_rule("too-long", r"(?:prompt|input context|context) (?:is )?too (?:large|long)(?: for (?:this|the) model|\.|$)"),
    *_rule("context-length", r"(?:maximum|longer than the models?) context length"),
    *_rule(
        "token-limit",
        r"token limit exceeded|token length too long|prompt tokens too long|request contains too many tokens",
    ),
)

RATE_LIMIT_TEXT = _rule(
    "rate-limit",
    r"rate[ _-]?limit|tokens per (?:min|day|hour|month|second)|requests per|\b(?:tpm|tpd|rpm|rpd|itpm|otpm)\b|quota|"
    r"throttl|too many requests|wait before trying|resource[ _]exhausted|usage limit|"
    r"(?:daily|hourly|weekly|monthly)[^.]{0,40}limit|limit[^.]{0,40}(?:this minute|for today)|"
    r"too many tokens, please wait|service unavailable: too many tokens|限流|速率限制|请求过于频繁|配额|额度",
    "",
)[0]

RATE = _pattern(r"limit:? <limit>(?:, used:? \d{1,12})?,? (?:/ )?requested:? <requested>")
"""The numbers of OpenAI's and Groq's rate limits: continuedev/continue#10218, vanna-ai/vanna-flask#11."""

UNRELATED_TEXTS: tuple[Rule, ...] = (
    # One field's own limit, whatever the window
    *_rule("string-length", r"expected an? (?:string|array|object) with (?:maximum|at most)", ""),
    # A setting that no prompt would fit
    *_rule("small-window", r"context window (?:is )?too small", ""),
    # More output asked for than the model ever gives: Anthropic, OpenAI, DeepSeek (deepseek-ai/DeepSeek-V3#69),
    # Qwen (open-webui/open-webui#10507), Bedrock (vercel/ai#2772), Groq (skapadia3214/groq-moa#8), Vertex
    *_rule("output-maximum", r"which is the maximum allowed number of output tokens", ""),
    *_rule("output-completion", r"this model supports at most <limit> completion tokens", ""),
    *_rule("output-range", r"range of max_tokens|supported range is from", ""),
    *_rule("output-bedrock", r"maximum tokens you requested exceeds? the model limit", ""),
    *_rule(
        "output-bound",
        r"(?<!\+ )\bmax_(?:completion_|new_|output_)?tokens[^+]{0,60}must be (?:<=|less than|at least|at most)",
        "",
    ),
    *_rule("image-size", r"image (?:exceeds|dimensions|size)|too many images", ""),
)

_PARTS = _pattern(
    r"<n> (?:tokens )?(?:\(?(?:in|of|for|from) (?:the |your )?(?P<of>messages|prompt|text input|tool input|image input|"
    r"audio input|file input|input messages|functions|tools|completion|output)|(?P<side>input|output) tokens)"
)
_TOTAL = _pattern(
    r"(?:requested(?: a total of| about| at least)?|resulted in|total of(?: at least)?|contains|prompt is) <n> tokens"
)
_BOUND = re.compile(r"at least|upper bound")


class TokenNumbers(Struct, frozen=True):
    """The numbers in an error message; 0 for missing ones."""

    limit: int = 0
    requested: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    at_least: bool = False


def parse_token_numbers(match: re.Match[str], window: int) -> TokenNumbers:
    """Return the numbers of a matched message: those in the rule's groups, else those around the match."""
    groups = {name: parse_number(digits) for name, digits in match.groupdict().items()}
    limit, requested = groups.get("limit", 0), groups.get("requested", 0)
    inputs, outputs = groups.get("input", 0), groups.get("output", 0)
    if groups.get("over") and window:
        requested = window + groups["over"]
    if requested or inputs or outputs:
        return TokenNumbers(limit, requested or inputs + outputs, inputs, outputs)
    nearby = match.string[max(0, match.start() - 200) : match.end() + 400]
    for part in _PARTS.finditer(nearby):
        if "completion" in part[0] or "output" in part[0]:
            outputs += parse_number(part["n"])
        else:
            inputs += parse_number(part["n"])
    total = _TOTAL.search(nearby)
    requested = parse_number(total["n"]) if total else inputs + outputs
    return TokenNumbers(limit, requested, inputs, outputs, bool(requested and _BOUND.search(nearby)))
