"""Errors as providers send them, and what each means. The sentences are those that the issues named in
`nexus/providers/errors/messages.toml` quote, with numbers of our own where they give none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from providers.errors.shapes import SHAPES


@dataclass(frozen=True)
class Case:
    """A status and a body in a shape, and the verdict that is due."""

    name: str
    provider: str
    shape: str
    status: int
    body: Any
    kind: str
    source: str
    limit: int = 0
    requested: int = 0
    part: str = ""
    limit_of: str = ""
    at_least: bool = False

    def error(self) -> object:
        return SHAPES[self.shape](self.status, self.body)


CASES: list[Case] = []


def _over(
    name: str,
    provider: str,
    shape: str,
    status: int,
    body: Any,
    source: str,
    limit: int = 0,
    requested: int = 0,
    part: str = "input",
    limit_of: str | None = None,
    *,
    at_least: bool = False,
) -> None:
    of = limit_of if limit_of is not None else "window" if limit else ""
    CASES.append(Case(name, provider, shape, status, body, "overflow", source, limit, requested, part, of, at_least))


def _rate(
    name: str, provider: str, shape: str, status: int, body: Any, source: str, limit: int = 0, requested: int = 0
) -> None:
    CASES.append(Case(name, provider, shape, status, body, "rate_limit", source, limit, requested))


def _other(name: str, provider: str, shape: str, status: int, body: Any, source: str = "none") -> None:
    CASES.append(Case(name, provider, shape, status, body, "other", source))


def _openai(message: str, code: Any = None, kind: str = "invalid_request_error", param: str | None = None) -> Any:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _anthropic(message: str, kind: str = "invalid_request_error") -> Any:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011CUB2XUHWkFnQzxcKBbjpF"}


def _google(message: str, status: str = "INVALID_ARGUMENT", code: int = 400) -> Any:
    return {"error": {"code": code, "message": message, "status": status}}


RESULTED = "This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens. Please reduce the length of the messages."
SPLIT = "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in the messages, 8192 in the completion). Please reduce the length of the messages or completion."
WINDOW = "Your input exceeds the context window of this model. Please adjust your input and try again."
CODE = "code:context_length_exceeded"
FAMILY = "text:maximum-context-length"

# fmt: off
# One case a line: the table is read by eye, and its sentences are looked for by their words.

# OpenAI and Azure
_over("chat", "openai", "openai", 400, _openai(RESULTED, "context_length_exceeded", param="messages"), CODE, 128_000, 204_308)
_over("functions", "openai", "openai", 400, _openai("This model's maximum context length is 16385 tokens. However, your messages resulted in 23273 tokens (22394 in the messages, 879 in the functions). Please reduce the length of the messages or functions.", "context_length_exceeded"), CODE, 16_385, 23_273)
_over("completions", "openai", "openai", 400, _openai("This model's maximum context length is 4097 tokens, however you requested 4569 tokens (3545 in your prompt; 1024 for the completion). Please reduce your prompt; or completion length." ), FAMILY, 4_097, 4_569, "output")
_over("responses", "openai", "openai", 400, _openai(WINDOW, "context_length_exceeded", param="input"), CODE)
_over("responses stream", "openai", "openai stream", 0, {"type": "error", "code": "context_length_exceeded", "message": WINDOW, "param": "input"}, CODE)
_over("responses failed", "openai", "body", 0, {"type": "response.failed", "response": {"status": "failed", "error": {"code": "context_length_exceeded", "message": WINDOW}}}, CODE)
_over("responses text", "openai", "plain", 0, WINDOW, "text:exceeds-context")
_over("configured", "openai", "openai", 400, _openai("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 428548 tokens. Please reduce the length of the messages.", "context_length_exceeded"), CODE, 272_000, 428_548, limit_of="input")
_over("separators", "openai", "openai", 400, _openai("Input tokens exceed the configured limit of 272,000 tokens. Your messages resulted in 428,548 tokens."), "text:openai-input", 272_000, 428_548, limit_of="input")
_over("azure", "azure", "openai", 400, _openai(RESULTED, "context_length_exceeded", param="messages"), CODE, 128_000, 204_308)
_over("azure foundry", "azure", "openai", 400, {"error": {"code": "BadRequest", "message": "", "details": "Input tokens exceed the configured limit of 272000 tokens."} }, "text:openai-input", 272_000, limit_of="input")
_over("code on 429", "openai", "openai", 429, _openai("Too large.", "context_length_exceeded"), CODE)
_over("raised from", "openai", "raised from", 400, _openai(RESULTED, "context_length_exceeded"), CODE, 128_000, 204_308)
_over("group", "openai", "group", 400, _openai(RESULTED, "context_length_exceeded"), CODE, 128_000, 204_308)
_over("printed", "openai", "plain", 0, f"Error code: 400 - {_openai(RESULTED, 'context_length_exceeded')}", CODE, 128_000, 204_308)
_over("httpx", "openai", "httpx", 400, _openai(RESULTED, "context_length_exceeded"), CODE, 128_000, 204_308)
_over("pair", "openai", "pair", 400, _openai(SPLIT), FAMILY, 131_072, 131_134, "output")
_over("bytes", "openai", "bytes", 400, _openai(SPLIT), FAMILY, 131_072, 131_134, "output")

# Anthropic
TOO_LONG = "prompt is too long: 213462 tokens > 200000 maximum"
LIMIT = "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length or `max_tokens` and try again"
_over("prompt", "anthropic", "anthropic", 400, _anthropic(TOO_LONG), "text:anthropic-prompt", 200_000, 213_462)
_over("output", "anthropic", "anthropic", 400, _anthropic(LIMIT), "text:anthropic-output", 200_000, 242_959, "output")
_over("bytes", "anthropic", "anthropic", 413, _anthropic("Request exceeds the maximum size", "request_too_large"), "type:request_too_large", part="bytes")
_over("stream event", "anthropic", "body", 0, _anthropic(TOO_LONG), "text:anthropic-prompt", 200_000, 213_462)
_over("separators", "anthropic", "plain", 0, "prompt is too long: 1,213,462 tokens > 1,000,000 maximum", "text:anthropic-prompt", 1_000_000, 1_213_462)
_over("line break", "anthropic", "plain", 0, "400 input length and `max_tokens` exceed context limit: \n     189136 + 20000 > 204648, decrease", "text:anthropic-output", 204_648, 209_136, "output")

# Bedrock
_over("converse", "bedrock", "bedrock", 400, ("ValidationException", "Input is too long for requested model.", "Converse"), "text:bedrock-input")
_over("converse stream", "bedrock", "bedrock", 400, ("validationException", "The model returned the following errors: Input is too long for requested model.", "ConverseStream"), "text:bedrock-input")
_over("claude", "bedrock", "bedrock", 400, ("ValidationException", "The model returned the following errors: prompt is too long: 200049 tokens > 200000 maximum", "ConverseStream"), "text:anthropic-prompt", 200_000, 200_049)
_over("invoke claude", "bedrock", "bedrock", 400, ("ValidationException", LIMIT, "InvokeModel"), "text:anthropic-output", 200_000, 242_959, "output")
_over("nova", "bedrock", "bedrock", 400, ("ValidationException", "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again.", "Converse"), "text:bedrock-nova")
_over("titan", "bedrock", "bedrock", 400, ("ValidationException", "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 9279 ", "InvokeModel"), "text:bedrock-titan", 8_192, 9_279, limit_of="input")
_over("llama", "bedrock", "bedrock", 400, ("ValidationException", "This model's maximum context length is 8192 tokens. Please reduce the length of the prompt", "InvokeModel"), FAMILY, 8_192)
_over("event", "bedrock", "body", 0, {"validationException": {"message": "Input is too long for requested model."}}, "text:bedrock-input")

# Gemini API and Vertex
COUNT = "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576)."
_over("gemini", "gemini", "gemini", 400, _google(COUNT), "text:gemini-input", 1_048_576, 1_200_293, limit_of="input")
_over("list", "gemini", "gemini", 400, [_google(COUNT)], "text:gemini-input", 1_048_576, 1_200_293, limit_of="input")
_over("without numbers", "gemini", "gemini", 400, _google("The input token count exceeds the maximum number of tokens allowed 1048576."), "text:gemini-input", 1_048_576, limit_of="input")
_over("upload", "gemini", "gemini", 400, _google("Request contains a file above the number of tokens allowed."), "text:gemini-upload")
_over("payload", "gemini", "gemini", 400, _google("Request payload size exceeds the limit: 20971520 bytes."), "text:gemini-bytes", part="bytes")
_over("json in json", "gemini", "body", 0, {"error": {"message": '{\n  "error": {\n    "code": 400,\n    "message": "The input token count (3475108) exceeds the maximum number of tokens allowed (1048576).",\n    "status": "INVALID_ARGUMENT"\n  }\n}\n', "code": 400, "status": "Bad Request"} }, "text:gemini-input", 1_048_576, 3_475_108, limit_of="input")
_over("vertex", "vertex", "gemini", 400, _google("Unable to submit request because the input token count is 32825 but model only supports up to 32768. Reduce the input token count and try again." ), "text:vertex-input", 32_768, 32_825, limit_of="input")
_over("printed", "vertex", "plain", 0, f"400 INVALID_ARGUMENT. {_google(COUNT)}", "text:gemini-input", 1_048_576, 1_200_293, limit_of="input")

# Mistral, Groq, Cerebras
_over("mistral", "mistral", "mistral", 400, {"object": "error", "message": "Prompt contains 321774 tokens and 0 draft tokens, too large for model with 262144 maximum context length", "type": "invalid_request_prompt", "param": None, "code": "3051"}, "text:mistral-prompt", 262_144, 321_774)
_over("empty 400", "mistral", "mistral", 400, "", "status:400 without a body")
_over("groq", "groq", "stainless", 400, _openai("Please reduce the length of the messages or completion.", "context_length_exceeded", param="messages"), CODE)
_over("groq text", "groq", "plain", 0, "Please reduce the length of the messages or completion.", "text:reduce-messages" )
_over("cerebras", "cerebras", "stainless", 400, {"message": "Please reduce the length of the messages or completion. Current length is 42328 while limit is 40000", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}, CODE, 40_000, 42_328)
_over("cerebras empty", "cerebras/qwen-3", "stainless", 413, "", "status:413 without a body")
_over("cerebras printed", "cerebras", "plain", 0, "400 status code (no body)", "status:400 without a body")

# OpenRouter, DeepSeek, xAI, Together, LiteLLM
_over("endpoint", "openrouter", "openai", 400, {"error": {"message": 'This endpoint\'s maximum context length is 163840 tokens. However, you requested about 172900 tokens (4429 of text input, 4631 of tool input, 163840 in the output). Please reduce the length of either one, or use the "middle-out" transform to compress your prompt automatically.', "code": 400, "metadata": {"provider_name": None}} }, FAMILY, 163_840, 172_900, "output")
_over("endpoint text", "openrouter", "openai", 400, {"error": {"message": "This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens (42832 of text input). Please reduce the length of either one.", "code": 400} }, FAMILY, 32_768, 42_832)
_over("raw json", "openrouter", "openai", 400, {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": '{"error":{"message":"This model\'s maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}', "provider_name": "OpenAI"}} }, CODE, 128_000, 204_308)
_over("raw text", "openrouter", "openai", 400, {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "prompt is too long: 213462 tokens > 200000 maximum", "provider_name": "Anthropic"}} }, "text:anthropic-prompt", 200_000, 213_462)
_over("flat raw", "openrouter", "openai stream", 0, {"message": "Provider returned error", "code": 400, "metadata": {"raw": f'{{"type":"error","error":{{"type":"invalid_request_error","message":"{TOO_LONG}"}}}}'}}, "text:anthropic-prompt", 200_000, 213_462)
_over("deepseek", "deepseek", "openai", 400, _openai(SPLIT, "invalid_request_error"), FAMILY, 131_072, 131_134, "output" )
_over("deepseek input", "deepseek", "openai", 400, _openai("This model's maximum context length is 65536 tokens. However, you requested 69648 tokens (69648 in the messages, 0 in the completion). Please reduce the length of the messages or completion." ), FAMILY, 65_536, 69_648)
_over("xai", "xai", "openai", 400, {"code": "Client specified an invalid argument", "error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens."}, "text:xai-prompt", 131_072, 537_812, limit_of="input")
_over("together", "together", "openai", 422, _openai("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 6204 `inputs` tokens and 2047 `max_new_tokens`" ), "text:tgi-output", 8_193, 8_251, "output")
_over("together length", "together", "openai", 400, _openai("The input (516368 tokens) is longer than the model's context length (262144 tokens)."), "text:sglang-input", 262_144, 516_368)
_over("litellm", "litellm", "litellm window", 400, 'litellm.BadRequestError: ContextWindowExceededError: OpenAIException - {"object":"error","message":"The input (564686 tokens) is longer than the model\'s context length (524288 tokens).","type":"BadRequestError","param":null,"code":400}', "class:ContextWindowExceededError", 524_288, 564_686)
_over("litellm output", "litellm", "litellm window", 400, "OpenAIException - 'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 48640 tokens and your request has 41000 input tokens (8192 > 48640 - 41000).", "class:ContextWindowExceededError", 48_640, 49_192, "output")
_over("litellm repr", "litellm", "litellm bad", 400, f'AnthropicException - b\'{{"type":"error","error":{{"type":"invalid_request_error","message":"{LIMIT}"}}}}\'', "text:anthropic-output", 200_000, 242_959, "output")
_over("litellm empty window", "litellm", "litellm window", 400, "no words", "class:ContextWindowExceededError")

# Servers of one's own
_over("ollama", "ollama", "ollama", 400, "prompt too long; exceeded max context length by 4096 tokens", "text:ollama-prompt", 0, 12_288)
_over("ollama length", "ollama", "ollama", 400, "the input length exceeds the context length", "text:ollama-input")
_over("vllm 0.9", "vllm", "openai", 400, {"object": "error", "message": "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens in the messages, Please reduce the length of the messages.", "type": "BadRequestError", "param": None, "code": 400}, FAMILY, 8_192, 9_000)
_over("vllm 0.11", "vllm", "openai", 400, {"object": "error", "message": "This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens. Please reduce the length of the input messages.", "type": "BadRequestError", "param": None, "code": 400}, FAMILY, 8_192, 9_000)
_over("vllm output", "vllm", "openai", 400, {"error": {"message": "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 tokens and your request has 2104 input tokens (2000 > 4096 - 2104).", "type": "BadRequestError", "param": None, "code": 400} }, "text:vllm-output", 4_096, 4_104, "output")
_over("vllm 0.25", "vllm", "openai", 400, {"error": {"message": "This model's maximum context length is 8192 tokens. However, you requested 64 output tokens and your prompt contains 10000 input tokens, for a total of 10064 tokens. Please reduce the length of the input prompt or the number of requested output tokens.", "type": "BadRequestError", "code": 400} }, FAMILY, 8_192, 10_064)
_over("vllm bound", "vllm", "openai", 400, {"error": {"message": "This model's maximum context length is 128000 tokens. However, you requested 65535 output tokens and your prompt contains at least 62466 input tokens, for a total of at least 128001 tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=62466)", "type": "BadRequestError", "code": 400} }, FAMILY, 128_000, 128_001, "output", at_least=True)
_over("vllm characters", "vllm", "openai", 400, {"error": {"message": "This model's maximum context length is 8192 tokens. However, you requested 64 output tokens and your prompt contains 100000 characters (more than 81280 characters, which is the upper bound for 8128 input tokens). Please reduce the length of the input prompt or the number of requested output tokens.", "code": 400} }, FAMILY, 8_192, 8_192, "output", at_least=True)
_over("vllm setting", "vllm", "openai", 400, {"error": {"message": "max_tokens=8888 cannot be greater than max_model_len=max_total_tokens=3072. Please request fewer output tokens.", "code": 400} }, "text:vllm-setting", 3_072, 8_888, "output")
_over("vllm old", "vllm", "openai", 400, {"object": "error", "message": "The prompt (total length 43328) is too long to fit into the model (context length 32768). Make sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens."}, "text:vllm-old", 32_768, 43_328)
_over("vllm negative", "vllm", "openai", 400, {"error": {"message": "max_tokens must be at least 1, got -7584.", "type": "BadRequestError", "param": "max_tokens", "code": 400} }, "text:negative-output", 0, 15_776)
_other("vllm unlimited", "vllm", "openai", 400, {"error": {"message": "max_tokens must be at least 1, got -1.", "type": "BadRequestError", "code": 400} }, "text:output-bound")
_over("vllm scheduler", "vllm", "plain", 0, "Input prompt (2664 tokens) is too long and exceeds limit of 2560", "text:vllm-scheduler", 2_560, 2_664)
_over("llama.cpp", "llama.cpp", "openai", 400, {"error": {"code": 400, "message": "the request exceeds the available context size, try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 14429, "n_ctx": 8192} }, "type:exceed_context_size_error", 8_192, 14_429)
_over("llama.cpp to anthropic", "llama.cpp", "anthropic", 400, {"error": {"code": 400, "message": "request (14429 tokens) exceeds the available context size (8192 tokens), try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 14429, "n_ctx": 8192} }, "type:exceed_context_size_error", 8_192, 14_429)
_over("llama.cpp 500", "llama.cpp", "plain", 0, '{"error":{"code":500,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}', "type:exceed_context_size_error", 256, 1_407)
_over("llama.cpp old", "llama.cpp", "httpx", 500, "Context size has been exceeded.", "text:llamacpp-context")
_over("llama.cpp quoted", "llama.cpp", "plain", 0, 'upstream said: {\\"error\\":{\\"type\\":\\"exceed_context_size_error\\",\\"n_prompt_tokens\\":1407,\\"n_ctx\\":256}}', "code:exceed_context_size_error", 256, 1_407)
_over("llama-cpp-python", "llama.cpp", "plain", 0, "Requested tokens (2285) exceed context window of 2048", "text:llamacpp-python", 2_048, 2_285)
_over("lm studio", "lmstudio", "openai stream", 0, {"message": "The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input" }, "text:lmstudio-initial")
_over("lm studio keep", "lmstudio", "openai", 400, {"error": "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context length of only 32768 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input." }, "text:lmstudio-keep", 32_768, 111_490)
_over("lm studio n_keep", "lmstudio", "plain", 0, "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)", "text:llamacpp-keep", 7_424, 15_028)
_over("sglang", "sglang", "openai", 400, {"object": "error", "message": "Requested token count exceeds the model's maximum context length of 262144 tokens. You requested a total of 267042 tokens: 201506 tokens from the input messages and 65536 tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.", "type": "BadRequestError", "param": None, "code": 400}, FAMILY, 262_144, 267_042, "output")
_over("sglang float", "sglang", "openai", 400, _openai("Requested token count exceeds the model's maximum context length of 131072 tokens. You requested a total of 524300.0 tokens: 12 tokens from the input messages and 524288.0 tokens for the completion." ), FAMILY, 131_072, 524_300, "output")
_over("sglang input", "sglang", "openai", 400, _openai("Input length (265330) exceeds model's maximum context length (262144)."), "text:sglang-length", 262_144, 265_330)
_over("tgi", "tgi", "httpx", 422, {"error": "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000", "error_type": "validation"}, "text:tgi-input", 4_096, 5_000, limit_of="input")
_over("tgi output", "tgi", "httpx", 422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3474 `inputs` tokens and 60 `max_new_tokens`", "error_type": "validation"}, "text:tgi-output", 2_048, 3_534, "input")

# Others that speak the same protocols
_over("copilot", "copilot", "openai", 400, _openai("prompt token count of 391491 exceeds the limit of 128000", "model_max_prompt_tokens_exceeded"), "code:model_max_prompt_tokens_exceeded", 128_000, 391_491, limit_of="input")
_over("kimi", "kimi", "openai", 400, _openai("Your request exceeded model token limit: 262144 (requested: 300000)"), "text:kimi-limit", 262_144, 300_000)
_over("minimax", "minimax", "openai", 400, _openai("invalid params, context window exceeds limit (2013)"), "text:minimax-window")
_over("cohere", "cohere", "httpx", 400, {"message": "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000."}, "text:cohere-tokens")
_over("qwen", "qwen", "openai", 400, {"error": {"code": "invalid_parameter_error", "message": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 983616]", "param": None, "type": "invalid_request_error"} }, "text:qwen-range", 983_616, limit_of="input")
_over("zhipu", "zhipu", "openai", 400, {"error": {"code": "1261", "message": "Prompt 超长"}}, "code:1261")
_over("zhipu number", "", "body", 0, {"error": {"code": 1261, "message": "错误"}}, "code:1261")
_over("zhipu escaped", "gateway", "plain", 0, 'HTTP 400: {"message":"Prompt \\u8d85\\u957f"}', "text:zhipu-prompt")
_over("chinese", "gateway", "plain", 0, "输入内容的长度超过模型上限", "text:chinese-length")
_over("spaces as separators", "gateway", "plain", 0, "prompt is too long: 213\u202f462 tokens > 200\u00a0000 maximum", "text:anthropic-prompt", 200_000, 213_462)
_over("dots as separators", "gateway", "plain", 0, "Prompt has 300.000 tokens, but the configured context size is 131.072 tokens", "text:configured-size", 131_072, 300_000)
_over("thousands", "gateway", "plain", 0, "Model context window is 128k tokens, you requested 256k tokens", "text:context-window-is", 128_000, 256_000)
_over("general", "gateway", "plain", 0, "OutofContextError: context length exceeded", "text:context-exceeded")
_over("unavailable window", "gateway", "pair", 503, "503 service unavailable: requested token count exceeds the model's maximum context length of 131072 tokens.", FAMILY, 131_072)

_over("poolside", "poolside", "plain", 0, "Input length 265330 exceeds the maximum allowed input length of 262144 tokens.", "text:input-length", 262_144, 265_330, limit_of="input")
_over("ark", "ark", "openai", 400, _openai("Total tokens of image and text exceed max message tokens. Request id: 0217"), "text:ark-messages")
_over("vllm v1", "vllm", "plain", 0, "Prompt length of 9000 is longer than the maximum model length of 8192.", "text:vllm-v1", 8_192, 9_000)
_over("kimi length", "kimi", "plain", 0, "Input token length too long", "text:token-limit")
_over("mlx", "mlx", "plain", 0, "Prompt longer than the model's context length", "text:context-length")
_over("anthropic bytes in a text", "anthropic", "plain", 0, "Request exceeds the maximum allowed number of bytes.", "text:anthropic-bytes", part="bytes")

_over("gemini input", "gemini", "gemini", 500, _google("Your input context is too long.", "INTERNAL", 500), "text:too-long")
_over("gemini tokens", "gemini", "gemini", 400, _google("Request contains too many tokens. Please reduce the input size."), "text:token-limit")
_over("length only", "gateway", "plain", 0, "The prompt has 5000 tokens and the model's context length is only 4096 tokens", "text:context-only", 4_096)
_over("length of", "gateway", "plain", 0, "context length of 128,000 exceeded", "text:context-exceeded", 128_000)
_over("number of tokens", "ctransformers", "plain", 0, "Number of tokens (757) exceeded maximum context length (512).", "text:exceeds-context", 512)

# A proxy's 413: too many bytes, which a smaller context helps against; it tells nothing of the window
_over("nginx", "gateway", "httpx", 413, "<html><head><title>413 Request Entity Too Large</title></head><body>nginx</body></html>", "text:http-413", part="bytes")
_over("413 alone", "", "status", 413, None, "status:413", part="bytes")
_over("413 without words", "gateway", "openai", 413, "", "status:413", part="bytes")

# Rates, quotas, throttling
TPM = "Request too large for model `llama-3.3-70b-versatile` in organization `org_01` service tier `on_demand` on tokens per minute (TPM): Limit 12000, Requested 14137, please reduce your message size and try again. Need more tokens? Upgrade to Dev Tier today at https://console.groq.com/settings/billing"
_rate("groq 413", "groq", "stainless", 413, {"error": {"message": TPM, "type": "tokens", "code": "rate_limit_exceeded"}}, "code:rate_limit_exceeded", 12_000, 14_137)
_rate("groq minute text", "groq", "plain", 0, f"413 {TPM}", "text:rate-limit", 12_000, 14_137)
_rate("groq day", "groq", "pair", 429, "Rate limit reached for model `x` on tokens per day (TPD): Limit 100000, Used 97050, Requested 3619. Please try again in 9m38.016s.", "status:429", 100_000, 3_619)
_rate("openai tpm", "openai", "openai", 429, _openai("Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 342389. The input or output tokens must be reduced in order to run successfully.", "rate_limit_exceeded", "tokens"), "code:rate_limit_exceeded", 30_000, 342_389)
_rate("openai quota", "openai", "openai", 429, _openai("You exceeded your current quota, please check your plan and billing details.", "insufficient_quota", "insufficient_quota"), "code:insufficient_quota")
_rate("anthropic", "anthropic", "anthropic", 429, _anthropic("This request would exceed your organization's rate limit of 30,000 input tokens per minute.", "rate_limit_error"), "type:rate_limit_error")
_rate("anthropic long", "anthropic", "anthropic", 429, _anthropic("Extra usage is required for long context requests.", "rate_limit_error"), "type:rate_limit_error")
_rate("429 that speaks of a window", "gateway", "pair", 429, "prompt is too long: 213462 tokens > 200000 maximum", "status:429")
_rate("429 in a text", "gateway", "plain", 0, "429 maximum context length", "status:429")
_rate("bedrock", "bedrock", "bedrock", 429, ("ThrottlingException", "Too many tokens, please wait before trying again.", "Converse"), "code:ThrottlingException")
_rate("bedrock text", "bedrock", "plain", 0, "Throttling error: Too many tokens, please wait before trying again.", "text:rate-limit")
_rate("bedrock unavailable", "bedrock", "plain", 0, "Service unavailable: Too many tokens", "text:rate-limit")
_rate("bedrock day", "bedrock", "plain", 0, "Too many tokens per day, please wait before trying again.", "text:rate-limit" )
_rate("gemini quota", "gemini", "gemini", 429, _google("You exceeded your current quota. Quota exceeded for metric: generate_content_free_tier_input_token_count, limit: 250000", "RESOURCE_EXHAUSTED", 429), "status:RESOURCE_EXHAUSTED")
_rate("litellm rate", "litellm", "litellm rate", 429, "Rate limit reached: token limit exceeded for this minute", "class:RateLimitError")
_rate("minute", "gateway", "plain", 0, "Token limit exceeded: 40000 tokens per minute", "text:rate-limit")
_rate("day", "gateway", "plain", 0, "Daily token limit exceeded", "text:rate-limit")
_rate("kimi day", "kimi", "plain", 0, "request reached organization TPD rate limit, current: 1506556, limit: 1500000", "text:rate-limit")
_rate("openrouter", "openrouter", "openai", 429, {"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": "z-ai/glm is temporarily rate-limited upstream. Please retry shortly", "provider_name": "BaseTen"}} }, "class:RateLimitError")
_rate("chinese rate", "gateway", "plain", 0, "当前请求过于频繁，请稍后再试", "text:rate-limit")

# Other matters that sound alike
_other("field", "openai", "openai", 400, _openai("Invalid 'user': string too long. Expected a string with maximum length 64, but got a string with length 72 instead.", "string_above_max_length", param="user"), "code:string_above_max_length")
_other("field text", "openai", "plain", 0, "Invalid 'input[0].content': string too long. Expected a string with maximum length 10485760, but got a string with length 20971520 instead.", "text:string-length")
_other("field that speaks of a window", "openai", "openai", 400, _openai("exceeds maximum context length", "string_above_max_length"), "code:string_above_max_length")
_other("output of openai", "openai", "openai", 400, _openai("max_tokens is too large: 65536. This model supports at most 16384 completion tokens, whereas you provided 65536.", "invalid_value", param="max_tokens"), "text:output-completion")
_other("output of anthropic", "anthropic", "anthropic", 400, _anthropic("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-5" ), "text:output-maximum")
_other("output of deepseek", "deepseek", "openai", 400, _openai("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", "invalid_request_error"), "text:output-range")
_other("output of qwen", "qwen", "plain", 0, "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]", "text:output-range")
_other("output of bedrock", "bedrock", "bedrock", 400, ("ValidationException", "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that is lower than 4096.", "Converse"), "text:output-bedrock")
_other("output of groq", "groq", "stainless", 400, {"error": {"message": "max_tokens for `llama-3.1-8b-instant` must be less than or equal to 8000", "type": "invalid_request_error"} }, "text:output-bound")
_other("output of tgi", "tgi", "httpx", 422, {"error": "Input validation error: `max_new_tokens` must be <= 192. Given: 200"}, "text:output-bound")
_other("output of vertex", "vertex", "gemini", 400, _google("Unable to submit request because it has a maxOutputTokens value of 70000 but the supported range is from 1 (inclusive) to 65537 (exclusive). Update the value and try again." ), "text:output-range")
_other("parameter", "openai", "openai", 400, _openai("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "unsupported_parameter"))
_other("small window", "gateway", "plain", 0, "Model context window too small (minimum is 128k tokens)", "text:small-window")
_other("filter", "azure", "openai", 400, {"error": {"message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.", "type": None, "param": "prompt", "code": "content_filter", "status": 400, "innererror": {"code": "ResponsibleAIPolicyViolation"}} }, "code:content_filter")
_other("no such model", "openai", "openai", 404, _openai("The model `gpt-9` does not exist or you do not have access to it.", "model_not_found"), "code:model_not_found")
_other("key", "openai", "openai", 401, _openai("Incorrect API key provided.", "invalid_api_key"), "code:invalid_api_key" )
_other("credit", "openrouter", "openai", 402, {"error": {"message": "This request requires more credits, or fewer max_tokens. You requested up to 64000 tokens, but can only afford 1234.", "code": 402} })
_other("unavailable", "openai", "pair", 503, "Service unavailable")
_other("deadline", "gateway", "plain", 0, "context deadline exceeded")
_other("overloaded", "anthropic", "anthropic", 529, _anthropic("Overloaded", "overloaded_error"))
_other("malformed", "bedrock", "bedrock", 400, ("ValidationException", "Malformed input request, please reformat your input and try again.", "Converse"))
_other("tools", "openai", "openai", 400, _openai("Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 300 instead.", "array_above_max_length"), "code:array_above_max_length")
_other("image", "anthropic", "anthropic", 400, _anthropic("messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 5316852 bytes > 5242880 bytes"), "text:image-size")
_other("field name", "gateway", "plain", 0, "messages.0.content is too long for this field")
_other("batch", "llama.cpp", "plain", 0, "input is too large to process. increase the physical batch size")
_other("signature", "gemini", "gemini", 400, _google("Unable to submit request because Function Call is missing a `thought_signature`."))
_other("empty 400", "openai", "openai", 400, "")
_other("status", "", "status", 500, None)
_other("echo", "openai", "openai", 422, {"detail": [{"type": "string_type", "loc": ["body", "messages", 0, "content"], "msg": "Input should be a valid string", "input": "why does it say: prompt is too long: 213462 tokens > 200000 maximum?"} ] })
_other("connection", "", "plain", 0, "Connection error.")
_other("nothing", "", "plain", 0, "")
# fmt: on
