/** Messages of the AI SDK as neutral ones, and back where the context has another message than the prompt. */

const IMAGE = /^image\/(\*|png|jpe?g|gif|webp)$/;
/** Parts of results that no prompt has. */
const RESULT_ONLY = new Set(["error", "raw", "source", "stream-start", "tool-approval-request"]);

/**
 * Return a prompt's message as a neutral one.
 * @param {any} message
 */
export function neutralMessage({ role, content }) {
  if (role === "system") return { role, parts: [{ type: "text", text: content }] };
  const parts = content.flatMap((/** @type {any} */ part) => neutralParts(part, role));
  const isApproval = role === "tool" && !parts.some((/** @type {any} */ part) => part.type === "tool_result");
  return { role: isApproval ? "user" : role, parts };
}

/**
 * Return a part as neutral ones. Parts that have no neutral form are `unknown`, with one JSON in results and prompts.
 * @param {any} part
 * @param {string} role
 * @returns {any[]}
 */
export function neutralParts(part, role) {
  const { type, toolCallId, toolName: name, mediaType, filename, approvalId } = part;
  if (RESULT_ONLY.has(type) || part.preliminary) return [];
  if (type === "text") return [{ type, text: part.text }];
  if (type === "reasoning") {
    const signature = JSON.stringify(part.providerOptions ?? part.providerMetadata ?? "");
    return [{ type: "thinking", text: part.text, signature }];
  }
  const input = parsed(part.input);
  if (type === "tool-call" && !part.providerExecuted) {
    return [{ type: "tool_call", id: toolCallId, name, arguments: JSON.stringify(input ?? {}) }];
  }
  if (type === "tool-result" && role === "tool") return [neutralResult(part)];
  const data = address(part.data ?? part.url);
  const isImage = IMAGE.test(type === "image-url" ? "image/*" : mediaType) && !data.startsWith("{");
  if (role !== "assistant" && type !== "reasoning-file" && isImage) {
    return [{ type: "image", mediaType: mediaType ?? "image/*", [data.includes(":") ? "url" : "data"]: data }];
  }
  const value = part.result ?? part.output?.value;
  const raw = { toolCallId, name, input, value, data, mediaType, filename, approvalId, approved: part.approved, fileId: part.fileId };
  return [{ type: "unknown", kind: part.kind ?? type, raw: JSON.stringify(raw) }];
}

/**
 * Return the message to send in place of a prompt's: what is unchanged of it, with truncated results, and new texts.
 * @param {any} message
 * @param {any} own The prompt's message, if there is one.
 */
export function changedMessage({ role, parts }, own) {
  if (role === "system") return { ...own, role, content: parts.map(textOf).join("\n") };
  const rest = [...parts];
  const kept = (own?.content ?? []).flatMap((/** @type {any} */ ownPart) => {
    const [neutral] = neutralParts(ownPart, own.role);
    const at = rest.findIndex((part) => keyOf(part) === keyOf(neutral));
    if (at < 0) return neutral?.type === "unknown" ? [ownPart] : [];
    const [part] = rest.splice(at, 1);
    return [textOf(part) === textOf(neutral) ? ownPart : { ...ownPart, output: outputOf(part, ownPart.output) }];
  });
  const isTagged = own?.content.some((/** @type {any} */ ownPart) => ownPart.data?.type);
  return { ...own, role: own?.role ?? role, content: [...kept, ...rest.map((part) => newPart(part, isTagged))] };
}

/**
 * @param {any} part
 * @param {boolean} isTagged Whether the prompt's data has types, as in the AI SDK 7.
 */
function newPart(part, isTagged) {
  if (part.type === "image") {
    const data = isTagged ? { type: "data", data: part.data } : part.data;
    return { type: "file", mediaType: part.mediaType, data };
  }
  if (part.type !== "tool_result") return { type: "text", text: textOf(part) };
  return { type: "tool-result", toolCallId: part.callId, toolName: part.name ?? "", output: outputOf(part) };
}

/**
 * Return a neutral result as an output, with the files of the one that it is made from.
 * @param {any} part
 * @param {any} [own]
 */
function outputOf(part, own) {
  const files = own?.type === "content" ? own.value.filter((/** @type {any} */ block) => block.type !== "text") : [];
  const text = textOf(part);
  if (files.length) return { ...own, value: [{ type: "text", text }, ...files] };
  return { type: part.isError ? "error-text" : "text", value: text };
}

/**
 * Return a result as a neutral one, with a line in place of each file that is no image.
 * @param {any} part
 */
function neutralResult({ toolCallId: callId, toolName: name, output }) {
  const { type, value, reason = "Tool execution denied." } = output;
  const text = type === "execution-denied" ? reason : typeof value === "string" ? value : JSON.stringify(value);
  const blocks = type === "content" ? value : [{ type: "text", text }];
  const content = blocks.map((/** @type {any} */ block) => {
    const [neutral] = neutralParts(block, "tool");
    if (neutral.type !== "unknown") return neutral;
    const data = address(block.data ?? block.url) || JSON.stringify(block.fileId);
    const size = data?.length > 200 ? `${data.length} characters` : data;
    return { type: "text", text: `[${[block.type, block.mediaType, block.filename, size].filter(Boolean).join(", ")}]` };
  });
  return { type: "tool_result", callId, name, content, isError: !["text", "json", "content"].includes(type) };
}

/** @param {any} part */
function keyOf(part) {
  return part && `${part.type} ${part.callId ?? part.id ?? part.raw ?? (part.data || part.url || part.text)}`;
}

/** @param {any} part */
function textOf({ text = "", content = [] }) {
  return [text, ...content.map((/** @type {any} */ block) => block.text)].filter(Boolean).join("\n");
}

/**
 * Return the JSON value of a call's input, which is a text in results.
 * @param {unknown} input
 */
function parsed(input) {
  if (typeof input !== "string") return input;
  try {
    return JSON.parse(input);
  } catch {
    return input;
  }
}

/**
 * Return data as base64, its address, or the JSON of any other form.
 * @param {any} data
 * @returns {string}
 */
function address(data) {
  if (data?.type) return data.type === "data" || data.type === "url" ? address(data[data.type]) : JSON.stringify(data);
  if (!(data instanceof Uint8Array)) return data === undefined ? "" : String(data);
  let bytes = "";
  for (let start = 0; start < data.length; start += 32_768) bytes += String.fromCharCode(...data.subarray(start, start + 32_768));
  return btoa(bytes);
}

/**
 * Return a reply as it is recorded.
 * @param {any} reply Result of a model's call.
 */
export function resultOf({ content, usage, finishReason, response }) {
  const { inputTokens: input, outputTokens: output } = usage;
  return {
    parts: content.flatMap((/** @type {any} */ part) => neutralParts(part, "assistant")),
    usage: {
      inputTokens: input.total,
      cacheReadTokens: input.cacheRead,
      cacheWriteTokens: input.cacheWrite,
      outputTokens: output.total,
      reasoningTokens: output.reasoning,
    },
    stopReason: finishReason.unified.replace("-", "_"),
    model: response?.modelId,
  };
}
