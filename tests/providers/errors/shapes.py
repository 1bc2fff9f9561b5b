"""Errors as each provider's package raises them: by the packages themselves where they are here, else of their shape."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import anthropic
import httpx
import httpx2
import openai
from google.genai import errors as gemini_errors

URL = "https://provider.invalid/v1/call"
OPENAI = openai.OpenAI(api_key="none")
ANTHROPIC = anthropic.Anthropic(api_key="none")


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def _response(status: int, body: Any) -> httpx2.Response:
    return httpx2.Response(status, content=_bytes(body), request=httpx2.Request("POST", URL))


def of_openai(status: int, body: Any) -> Exception:
    """What the openai package makes of this answer."""
    return OPENAI._make_status_error_from_response(_response(status, body))


def of_anthropic(status: int, body: Any) -> Exception:
    """What the anthropic package makes of this answer."""
    return ANTHROPIC._make_status_error_from_response(_response(status, body))


def of_gemini(status: int, body: Any) -> Exception:
    """What the google-genai package makes of this answer."""
    try:
        gemini_errors.APIError.raise_for_response(_response(status, body))
    except gemini_errors.APIError as error:
        return error
    raise AssertionError


def of_httpx(status: int, body: Any) -> Exception:
    """What httpx raises for this answer."""
    response = httpx.Response(status, content=_bytes(body), request=httpx.Request("POST", URL))
    try:
        response.raise_for_status()
    except httpx.HTTPStatusError as error:
        return error
    raise AssertionError


class StainlessError(Exception):
    """The shape of groq's and cerebras-cloud-sdk's errors, which have neither `code` nor `type`."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"Error code: {status} - {body}" if body else f"Error code: {status}")
        self.message = str(self)
        self.body = body or None
        self.response = _response(status, body or "")
        self.status_code = status


class ClientError(Exception):
    """The shape of botocore's error; its service exceptions are subclasses."""

    def __init__(self, response: Mapping[str, Any], operation: str) -> None:
        said = response["Error"]
        super().__init__(
            f"An error occurred ({said['Code']}) when calling the {operation} operation: {said['Message']}"
        )
        self.response = response
        self.operation_name = operation


class ValidationException(ClientError):
    pass


class ThrottlingException(ClientError):
    pass


def of_bedrock(status: int, body: Any) -> Exception:
    """botocore's error; `body` is (code, message, operation)."""
    code, message, operation = body
    kind = {"ValidationException": ValidationException, "ThrottlingException": ThrottlingException}
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return kind.get(code, ClientError)(response, operation)


class SDKError(Exception):
    """The shape of mistralai's error: the body stays text."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"API error occurred: Status {status}. Body: {body}")
        self.message, self.status_code, self.body = str(self), status, body
        self.raw_response = _response(status, body)


class ResponseError(Exception):
    """The shape of ollama's error."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.error, self.status_code = error, status


class ContextWindowExceededError(Exception):
    """The shape of litellm's error for a context that is too long."""

    def __init__(self, status: int, message: str) -> None:
        self.status_code, self.message = status, f"litellm.ContextWindowExceededError: {message}"
        self.model, self.llm_provider = "some-model", "openai"
        super().__init__(self.message)


class RateLimitError(Exception):
    """The shape of litellm's error for a rate limit."""

    def __init__(self, status: int, message: str) -> None:
        self.status_code, self.message = status, f"litellm.RateLimitError: {message}"
        super().__init__(self.message)


class BadRequestError(Exception):
    """The shape of litellm's error for a request that it does not know better."""

    def __init__(self, status: int, message: str) -> None:
        self.status_code, self.message = status, f"litellm.BadRequestError: {message}"
        super().__init__(self.message)


def raised_from(status: int, body: Any) -> Exception:
    """An application's own error, raised from the openai package's."""
    try:
        try:
            raise of_openai(status, body)
        except openai.APIError as error:
            raise RuntimeError("the model could not be called") from error
    except RuntimeError as outer:
        return outer


def of_stream(status: int, body: Any) -> Exception:
    """What the openai package raises for an error within a stream: it has a body and no status."""
    assert status == 0
    return openai.APIError(body.get("message", ""), httpx2.Request("POST", URL), body=body)


SHAPES: Mapping[str, Callable[[int, Any], object]] = {
    "openai": of_openai,
    "openai stream": of_stream,
    "anthropic": of_anthropic,
    "gemini": of_gemini,
    "bedrock": of_bedrock,
    "mistral": lambda status, body: SDKError(status, body if isinstance(body, str) else json.dumps(body)),
    "stainless": StainlessError,
    "ollama": ResponseError,
    "litellm window": ContextWindowExceededError,
    "litellm rate": RateLimitError,
    "litellm bad": BadRequestError,
    "httpx": of_httpx,
    "raised from": raised_from,
    "plain": lambda _, body: ValueError(body),
    "pair": lambda status, body: (status, body),
    "bytes": lambda status, body: (status, _bytes(body)),
    "body": lambda _, body: body,
    "status": lambda status, _: status,
    "group": lambda status, body: ExceptionGroup("calls", [ValueError("no"), of_openai(status, body)]),
}
