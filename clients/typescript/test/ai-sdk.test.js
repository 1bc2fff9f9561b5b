/** The middleware with the AI SDK's own functions, a scripted model and a real server. */

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test } from "node:test";

import { generateText, jsonSchema, simulateReadableStream, stepCountIs, streamText, tool, wrapLanguageModel } from "ai";
import { Nexus } from "nexus-context-engine";
import { nexusMiddleware } from "nexus-context-engine/ai-sdk";

import { chooser, image, judge, randomPrompt } from "./prompts.js";

const { NEXUS_URL: url, NEXUS_TOKEN: token } = process.env;
const nexus = new Nexus({ url, token });
const usage = { inputTokens: { total: 90, noCache: 10, cacheRead: 80, cacheWrite: 0 }, outputTokens: { total: 7, text: 7, reasoning: 0 } };

/** Version of the AI SDK's types: v3 of `ai` 6, v4 of `ai` 7. */
const { specificationVersion } = wrapLanguageModel({ model: { specificationVersion: "v3" }, middleware: { specificationVersion: "v3" } });

/** A model that answers with what `script` returns for a prompt, and keeps the prompts. */
function scripted(script) {
  const prompts = [];
  const answer = async (params) => {
    prompts.push(params.prompt);
    const content = await script(params.prompt, prompts.length);
    const unified = content.some((part) => part.type === "tool-call" && !part.providerExecuted) ? "tool-calls" : "stop";
    return { content, finishReason: { unified, raw: unified }, usage, warnings: [], response: { modelId: "gpt-4o-2024-08-06" } };
  };
  return {
    specificationVersion,
    provider: "scripted",
    modelId: "gpt-4o",
    supportedUrls: { "*/*": [/.*/] },
    prompts,
    doGenerate: answer,
    async doStream(params) {
      const { content, finishReason } = await answer(params);
      const chunks = content.flatMap((part, index) => {
        if (part.type !== "text" && part.type !== "reasoning") return [part];
        const [id, half] = [String(index), part.text.length >> 1];
        const deltas = [part.text.slice(0, half), part.text.slice(half)].map((delta) => ({ type: `${part.type}-delta`, id, delta }));
        return [{ type: `${part.type}-start`, id }, ...deltas, { type: `${part.type}-end`, id, providerMetadata: part.providerMetadata }];
      });
      const all = [{ type: "stream-start", warnings: [] }, { type: "response-metadata", modelId: "gpt-4o-2024-08-06" }, ...chunks, { type: "finish", finishReason, usage }];
      return { stream: simulateReadableStream({ chunks: all, initialDelayInMs: null, chunkDelayInMs: null }) };
    },
  };
}

const says = (text) => [{ type: "text", text }];
const call = (toolCallId, toolName, input) => ({ type: "tool-call", toolCallId, toolName, input: JSON.stringify(input) });
const wrapped = (model, agent, options) => wrapLanguageModel({ model, middleware: nexusMiddleware(agent, options) });
const sentTexts = (prompt) => prompt.flatMap(({ content }) => (typeof content === "string" ? [content] : content.map((part) => part.text ?? "")));
const fileData = (data) => (specificationVersion === "v3" ? data : { type: "data", data });
const user = (text) => ({ role: "user", content: [{ type: "text", text }] });

/** Return all messages of a result; `ai` 7 has those of the last step in `response`. */
const messagesOf = async (result) => (await result.responseMessages) ?? (await result.response).messages;

async function sessionOf(agentId, conversation) {
  const { shown: _, ...place } = await nexus.agent(agentId).fit({ conversation, messages: [{ role: "user", parts: [{ type: "text", text: "?" }] }] });
  return place.session;
}

test("twenty turns with parallel tools, a failed one, images, files, streams and an edit", async () => {
  const budget = 4_000;
  const agent = await nexus.createAgent({ agentId: "shop", budget });
  const fits = [];
  const fit = agent.fit.bind(agent);
  agent.fit = async (...values) => {
    const fitted = await fit(...values);
    fits.push(fitted);
    assert.ok(fitted.tokens <= fitted.available && fitted.available <= budget);
    return fitted;
  };
  let calls = 0;
  const model = scripted((prompt) => {
    judge(prompt);
    const last = prompt.at(-1);
    if (last.role === "tool") return [{ type: "reasoning", text: "It is there.", providerMetadata: { anthropic: { signature: "s" } } }, ...says(`Turn done after ${last.content.length} results.`)];
    const number = calls++;
    if (number % 4 === 1) return [...says("Both."), call(`a${number}`, "find", { order: number }), call(`b${number}`, "find", { order: -1 })];
    if (number % 4 === 2) return [{ type: "tool-call", toolCallId: `s${number}`, toolName: "web", input: "{}", providerExecuted: true }, { type: "tool-result", toolCallId: `s${number}`, toolName: "web", result: [{ url: "u" }] }, ...says(`Searched ${number}.`)];
    return says(`Answer ${number}. ${"word ".repeat(60)}`);
  });
  const find = tool({
    inputSchema: jsonSchema({ type: "object", properties: { order: { type: "number" } } }),
    execute: ({ order }) => {
      if (order < 0) throw new Error("no such order");
      return `Order ${order}: ${"detail ".repeat(400)}`;
    },
  });
  const shared = { model: wrapped(model, agent, { conversation: "chat-1", onUnrecorded: (error) => assert.fail(error) }), tools: { find }, stopWhen: stepCountIs(4), system: "You are a shop." };
  let messages = [];
  for (let turn = 0; turn < 20; turn++) {
    const content = [{ type: "text", text: `Question ${turn}?` }];
    if (turn === 3) content.push({ type: "image", image: image.data, mediaType: "image/png" });
    if (turn === 5) content.push({ type: "file", data: "JVBERi0xLjcK", mediaType: "application/pdf", filename: "a.pdf" });
    if (turn === 12) messages = messages.map((message, index) => (index === messages.length - 2 ? { role: "user", content: "Edited question." } : message));
    messages.push({ role: "user", content });
    if (turn % 2) {
      const result = streamText({ ...shared, messages });
      await result.consumeStream();
      messages.push(...(await messagesOf(result)));
    } else {
      const result = await generateText({ ...shared, messages });
      messages.push(...(await messagesOf(result)));
    }
    assert.equal(messages.at(-1).role, "assistant");
  }
  assert.ok(model.prompts.length >= 25);
  assert.ok(model.prompts.at(-1).length < messages.length, "earlier messages were omitted");
  assert.equal(model.prompts[2].find((message) => message.role === "tool").content[1].output.type, "error-text");
  for (const [index, prompt] of model.prompts.entries()) assert.ok(sentTexts(prompt).some((text) => text.startsWith("Question")), `prompt ${index}`);
  const texts = messages.flatMap(({ content }) => (typeof content === "string" ? content : content.map((part) => part.text ?? part.output?.value))).filter((text) => typeof text === "string");
  const largest = Math.max(...fits.map(({ tokens }) => tokens));
  writeFileSync(process.env.RESULT, JSON.stringify({ calls: fits.length, largest, session: fits.at(-1).session, texts }));
});

test("a prompt that fits goes out as it came, object by object", async () => {
  const agent = await nexus.createAgent({ agentId: "laws" });
  const seeds = Number(process.env.SEEDS ?? 60);
  for (let seed = 1; seed <= seeds; seed++) {
    const prompt = randomPrompt(seed, specificationVersion);
    const before = structuredClone(prompt.map(({ content }) => JSON.stringify(content)));
    const model = scripted(() => says("Yes."));
    await wrapped(model, agent, { conversation: `law-${seed}` }).doGenerate({ prompt });
    const [sent] = model.prompts;
    assert.equal(sent.length, prompt.length, `seed ${seed}`);
    sent.forEach((message, index) => assert.ok(message === prompt[index], `seed ${seed}: message ${index} is another object: ${JSON.stringify([message, prompt[index]])}`));
    assert.deepEqual(prompt.map(({ content }) => JSON.stringify(content)), before, "nothing is changed in place");
  }
});

test("what is left of a prompt that was cut is the prompt's own, valid, and ends as it did", async () => {
  const agent = await nexus.createAgent({ agentId: "cuts", budget: 1_500 });
  for (let seed = 1; seed <= Number(process.env.SEEDS ?? 60); seed++) {
    const random = chooser(seed);
    const prompt = randomPrompt(seed + 10_000, specificationVersion, { turns: 9 });
    for (const message of prompt) {
      for (const part of message.role === "tool" ? message.content : []) if (!random.below(3)) part.output = { type: "text", value: "detail ".repeat(900) };
    }
    const model = scripted(() => says("Yes."));
    try {
      await wrapped(model, agent, { conversation: `cut-${seed}` }).doGenerate({ prompt });
    } catch (error) {
      assert.equal(error.code, "budget_too_small", `seed ${seed}: ${error.stack}`);
      continue;
    }
    const [sent] = model.prompts;
    judge(sent);
    const own = sent.filter((message) => prompt.includes(message));
    assert.deepEqual(own.map((message) => prompt.indexOf(message)), own.map((message) => prompt.indexOf(message)).sort((a, b) => a - b), `seed ${seed}: in order`);
    for (const message of sent.filter((message) => !prompt.includes(message) && message.role === "tool")) {
      for (const part of message.content) {
        const original = prompt.flatMap(({ content }) => content).find((other) => other.type === "tool-result" && other.toolCallId === part.toolCallId);
        assert.ok(original, `seed ${seed}: ${JSON.stringify(message)}`);
        assert.equal(part.toolName, original.toolName);
        assert.deepEqual(part.providerOptions, original.providerOptions);
      }
    }
    assert.equal(sent.at(-1).role, prompt.at(-1).role);
  }
});

test("what a failed call leaves is the history without it", async () => {
  const agent = await nexus.createAgent({ agentId: "failing" });
  const model = scripted((prompt, count) => {
    if (count === 2) throw new Error("provider is down");
    return says(`Answer ${count}.`);
  });
  const own = wrapped(model, agent, { conversation: "f" });
  const prompt = [user("One?")];
  await own.doGenerate({ prompt });
  prompt.push({ role: "assistant", content: says("Answer 1.") }, user("Two?"));
  await assert.rejects(own.doGenerate({ prompt }), /provider is down/);
  const { content } = await own.doGenerate({ prompt });
  assert.deepEqual(content, says("Answer 3."));
  prompt.push({ role: "assistant", content }, user("Three?"));
  const broken = { ...scripted(() => []), doStream: async () => ({ stream: simulateReadableStream({ chunks: [{ type: "text-start", id: "1" }, { type: "text-delta", id: "1", delta: "half" }, { type: "error", error: new Error("cut off") }, { type: "finish", usage, finishReason: { unified: "error" } }], chunkDelayInMs: null, initialDelayInMs: null }) }) };
  const { stream } = await wrapped(broken, agent, { conversation: "f" }).doStream({ prompt });
  await stream.pipeTo(new WritableStream());
  const aborted = await own.doStream({ prompt });
  await aborted.stream.cancel("enough");
  await own.doGenerate({ prompt });
  const texts = JSON.stringify(model.prompts.at(-1));
  assert.ok(!texts.includes("half"));
  const fitted = await agent.fit({ conversation: "f", messages: [...prompt.map(({ role, content: parts }) => ({ role, parts })), { role: "assistant", parts: [{ type: "text", text: "Answer 5." }] }, { role: "user", parts: [{ type: "text", text: "Four?" }] }] });
  assert.equal(fitted.action, "append", "one history, with the answers that came");
});

test("replies of each kind continue their session", async () => {
  const agent = await nexus.createAgent({ agentId: "kinds" });
  const kinds = [
    [{ type: "reasoning", text: "hm", providerMetadata: { openai: { itemId: "rs_1" } } }, ...says("Yes.")],
    [{ type: "file", mediaType: "image/png", data: fileData(image.data) }, ...says("An image.")],
    [{ type: "file", mediaType: "audio/wav", data: fileData(new Uint8Array([1, 2, 3])) }],
    [{ type: "source", sourceType: "url", id: "1", url: "https://example.com" }, ...says("Cited.")],
    [{ type: "tool-call", toolCallId: "s1", toolName: "web", input: '{"b": 1, "a": 2}', providerExecuted: true }, { type: "tool-result", toolCallId: "s1", toolName: "web", result: { ok: true } }, ...says("Found.")],
  ];
  for (const stream of [false, true]) {
    for (const [index, content] of kinds.entries()) {
      const conversation = `kind-${stream}-${index}`;
      const model = wrapped(scripted(() => content), agent, { conversation });
      const messages = [{ role: "user", content: "Go." }];
      if (stream) {
        const result = streamText({ model, messages });
        await result.consumeStream();
        messages.push(...(await messagesOf(result)));
      } else messages.push(...(await messagesOf(await generateText({ model, messages }))));
      const actions = [];
      const spy = Object.create(agent, { fit: { value: async (...values) => (actions.push(await agent.fit(...values)), actions.at(-1)) }, record: { value: (...values) => agent.record(...values) } });
      await generateText({ model: wrapped(scripted(() => says("Next.")), spy, { conversation }), messages: [...messages, { role: "user", content: "On." }] });
      assert.equal(actions[0].action, "append", conversation);
    }
  }
});

test("calls in flight together are all recorded, and conversations never meet", async () => {
  const agent = await nexus.createAgent({ agentId: "flight" });
  const model = scripted(async (prompt) => {
    await new Promise((resolve) => setTimeout(resolve, 20));
    return says(`To ${sentTexts(prompt).at(-1)}`);
  });
  const own = (conversation) => wrapped(model, agent, { conversation, onUnrecorded: (error) => assert.fail(error) });
  const first = [user("Start?"), { role: "assistant", content: says("To Start?") }];
  await own("x").doGenerate({ prompt: first.slice(0, 1) });
  const both = await Promise.all(["A?", "B?"].map((text) => own("x").doGenerate({ prompt: [...first, user(text)] })));
  assert.deepEqual(both.map(({ content }) => content[0].text), ["To A?", "To B?"]);
  for (const text of ["A?", "B?"]) {
    await own("x").doGenerate({ prompt: [...first, user(text), { role: "assistant", content: says(`To ${text}`) }, user("More?")] });
    assert.ok(!sentTexts(model.prompts.at(-1)).includes(text === "A?" ? "B?" : "A?"));
  }
  const other = await agent.fit({ conversation: "y", messages: [{ role: "user", parts: [{ type: "text", text: "Start?" }] }] });
  assert.equal(other.action, "new");
});

test("the conversation may come with the call, and is never guessed", async () => {
  const agent = await nexus.createAgent({ agentId: "named" });
  const model = wrapLanguageModel({ model: scripted(() => says("Yes.")), middleware: nexusMiddleware(agent) });
  await assert.rejects(model.doGenerate({ prompt: [user("Hi")] }), { code: "bad_setting" });
  await generateText({ model, prompt: "Hi", providerOptions: { nexus: { conversation: "mine" } } });
  assert.notEqual(await sessionOf("named", "mine"), await sessionOf("named", "other"));
});

test("a reply that cannot be recorded is not lost", async () => {
  const agent = await nexus.createAgent({ agentId: "late" });
  const errors = [];
  const deaf = Object.create(agent, { fit: { value: (...values) => agent.fit(...values) }, record: { value: async () => Promise.reject(new Error("server is gone")) } });
  const { text } = await generateText({ model: wrapped(scripted(() => says("Paid for.")), deaf, { conversation: "l", onUnrecorded: (error) => errors.push(error.message) }), prompt: "Hi" });
  assert.equal(text, "Paid for.");
  assert.deepEqual(errors, ["server is gone"]);
  const gone = new Nexus({ url: "http://127.0.0.1:9", token }).agent("late");
  await assert.rejects(generateText({ model: wrapped(scripted(() => says("No.")), gone, { conversation: "l" }), prompt: "Hi", maxRetries: 0 }), { name: "NexusError", code: "connection" });
});

test("a reply in another form than the model's version says is not lost", async () => {
  const agent = await nexus.createAgent({ agentId: "odd" });
  const errors = [];
  const odd = { ...scripted(() => says("Paid for.")), doGenerate: async () => ({ content: says("Paid for."), finishReason: "stop", warnings: [] }) };
  odd.doStream = async () => ({
    stream: simulateReadableStream({ chunks: [{ type: "text-start", id: "1" }, { type: "text-delta", id: "1", delta: "Paid for." }, { type: "finish", finishReason: "stop" }] }),
  });
  const model = wrapped(odd, agent, { conversation: "o", onUnrecorded: (error) => errors.push(error.name) });
  const prompt = [user("Hi")];
  assert.deepEqual((await model.doGenerate({ prompt })).content, says("Paid for."));
  const parts = [];
  for await (const part of (await model.doStream({ prompt })).stream) parts.push(part.type);
  assert.deepEqual(parts, ["text-start", "text-delta", "finish"]);
  assert.deepEqual(errors, ["TypeError", "TypeError"]);
});

test("a stream with a part that was never started goes on, and is not recorded", async () => {
  const agent = await nexus.createAgent({ agentId: "unstarted" });
  const chunks = [{ type: "text-delta", id: "1", delta: "Hi" }, { type: "finish", finishReason: { unified: "stop" }, usage }];
  const odd = { ...scripted(() => []), doStream: async () => ({ stream: simulateReadableStream({ chunks }) }) };
  const { stream } = await wrapped(odd, agent, { conversation: "s", onUnrecorded: assert.fail }).doStream({ prompt: [user("Hi")] });
  const parts = [];
  for await (const part of stream) parts.push(part.type);
  assert.deepEqual(parts, ["text-delta", "finish"]);
});
