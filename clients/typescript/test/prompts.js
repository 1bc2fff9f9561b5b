/** Prompts of the AI SDK: random ones of every kind that its types have, and a judge of what a provider takes. */

import assert from "node:assert/strict";

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
export const image = { type: "file", mediaType: "image/png", data: PNG };

/** Return a source of random choices that is the same for the same seed. */
export function chooser(seed) {
  let state = seed >>> 0;
  const below = (count) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % count;
  };
  return { below, one: (values) => values[below(values.length)], maybe: (make) => (below(3) ? {} : make()) };
}

const TEXTS = ["Which index?", "A GIN index.", "", "  ", "\n```js\nx\n```", "🙂 Zoë, 日本語", "</system> <b>", "0", "x ".repeat(300), "a\u0000b", "half \ud83d"];
const options = (random) => random.maybe(() => ({ providerOptions: { [random.one(["openai", "anthropic"])]: { itemId: `i${random.below(99)}`, cacheControl: { type: "ephemeral" } } } }));
const text = (random) => ({ type: "text", text: random.one(TEXTS), ...options(random) });
const json = (random) => random.one([null, 0, "text", [], {}, { a: [1, { b: null }] }, [true, 1.5e300, "é"]]);

function file(random) {
  const data = random.one([PNG, Uint8Array.from(Buffer.from(PNG, "base64")), new URL("https://example.com/a.png")]);
  const other = random.one(["JVBERi0xLjcK", new Uint8Array([1, 2, 255]), new URL("https://example.com/a.pdf?x=1")]);
  const kinds = [{ mediaType: random.one(["image/png", "image/*"]), data }, { mediaType: random.one(["application/pdf", "audio/wav", "text/csv", "image/svg+xml"]), data: other, filename: "a" }];
  return { type: "file", ...random.one(kinds), ...options(random) };
}

function output(random) {
  const blocks = [
    { type: "text", text: random.one(TEXTS) },
    { type: "image-data", data: PNG, mediaType: "image/png" },
    { type: "image-url", url: "https://example.com/b.png" },
    { type: "file-data", data: "JVBERi0xLjcK", mediaType: "application/pdf", filename: "b.pdf" },
    { type: "file-id", fileId: { openai: "f1" } },
    { type: "custom", providerOptions: { anthropic: { type: "tool-reference" } } },
  ];
  const value = Array.from({ length: random.below(4) }, () => random.one(blocks));
  return random.one([
    { type: "text", value: random.one(TEXTS) },
    { type: "json", value: json(random) },
    { type: "error-text", value: "disk is full" },
    { type: "error-json", value: json(random) },
    { type: "execution-denied", ...random.maybe(() => ({ reason: "not now" })) },
    { type: "content", value },
  ]);
}

/** Return a part as the AI SDK 7 has it: data is tagged with its type. */
function tagged(part, random) {
  const { data, url: address, type, ...rest } = part;
  if (part.output?.type === "content") return { ...part, output: { ...part.output, value: part.output.value.map((block) => tagged(block, random)) } };
  if (type === "file-id") return { type: "file", mediaType: "application/pdf", data: { type: "reference", reference: part.fileId } };
  if (!data && !address) return part;
  if (!random.below(5)) return { ...rest, type: "file", data: { type: "text", text: "plain" }, mediaType: "text/plain" };
  const value = data ?? new URL(address);
  return { ...rest, type: "file", mediaType: part.mediaType ?? "image/*", data: value instanceof URL ? { type: "url", url: value } : { type: "data", data: value } };
}

/** Return a valid prompt that ends with a user's message or with results, in a version of the AI SDK's types. */
export function randomPrompt(seed, version, limits) {
  const random = chooser(seed);
  const prompt = promptOf(random, seed, limits);
  if (version === "v3") return prompt;
  const extra = [{ type: "custom", kind: "openai.compaction", providerOptions: { openai: { itemId: "cmp_1" } } }, { type: "reasoning-file", mediaType: "image/png", data: { type: "data", data: PNG } }];
  return prompt.map((message) => {
    if (message.role === "system") return message;
    const own = message.role === "assistant" && !random.below(3) ? [random.one(extra)] : [];
    return { ...message, content: [...own, ...message.content.map((part) => tagged(part, random))] };
  });
}

function promptOf(random, seed, { turns = 4 } = {}) {
  const prompt = [];
  let calls = 0;
  for (let count = random.below(3); count; count--) prompt.push({ role: "system", content: random.one(["Be terse.", "Cite.", "  padded  "]), ...options(random) });
  for (let turn = random.below(turns); turn >= 0; turn--) {
    const filled = { type: "text", text: `turn ${turn}` };
    prompt.push({ role: "user", content: [filled, ...Array.from({ length: random.below(3) }, () => random.one([text, file])(random))], ...options(random) });
    for (let step = random.below(3); step && (turn || step > 1); step--) {
      const ids = Array.from({ length: random.below(3) + !turn }, () => `call_${seed}_${calls++}`);
      const made = ids.map((toolCallId) => ({ type: "tool-call", toolCallId, toolName: random.one(["find", "my-tool_2"]), input: random.one([{}, { q: "x", n: 1.0 }, { deep: [json(random)] }]), ...options(random) }));
      const hosted = `srv_${seed}_${calls++}`;
      const own = [
        ...random.one([[], [{ type: "reasoning", text: "hm", providerOptions: { anthropic: { signature: "sig==" } } }]]),
        ...random.one([[], [{ type: "tool-call", toolCallId: hosted, toolName: "web_search", input: { query: "x" }, providerExecuted: true }, { type: "tool-result", toolCallId: hosted, toolName: "web_search", output: { type: "json", value: [{ url: "u" }] }, providerOptions: { anthropic: { x: 1 } } }]]),
        ...random.one([[], [file(random)]]),
        text(random),
      ];
      prompt.push({ role: "assistant", content: [...own, { type: "text", text: `step ${step}` }, ...made], ...options(random) });
      if (!made.length) break; // a reply
      const results = made.map(({ toolCallId, toolName }) => ({ type: "tool-result", toolCallId, toolName, output: output(random), ...options(random) }));
      if (random.below(2)) prompt.push({ role: "tool", content: results });
      else for (const result of results) prompt.push({ role: "tool", content: [result], ...options(random) });
    }
    if (turn) prompt.push({ role: "assistant", content: [{ type: "text", text: `answer ${turn}` }] });
  }
  return prompt;
}

/** Assert that a provider takes a prompt: results follow their calls, each call has one, and no message is empty. */
export function judge(prompt) {
  let open = new Set();
  for (const { role, content } of prompt) {
    if (role !== "tool") assert.deepEqual([...open], [], `calls without results before a message of ${role}`);
    assert.ok(content.length, `empty message of ${role}`);
    for (const part of role === "system" ? [] : content) {
      if (part.type === "tool-call" && !part.providerExecuted) open.add(part.toolCallId);
      if (part.type === "tool-result" && role === "tool") assert.ok(open.delete(part.toolCallId), `result of no open call ${part.toolCallId}`);
    }
  }
  assert.deepEqual([...open], [], "calls without results at the end");
  assert.ok(["user", "tool"].includes(prompt.at(-1).role));
}
