/**
 * A middleware for the AI SDK (`ai` 6 or 7): each call sends what fits of its prompt, and is recorded.
 *
 *     const middleware = nexusMiddleware(agent, { conversation: chatId });
 *     const model = wrapLanguageModel({ model: openai("gpt-4o"), middleware });
 *
 * @module
 * @import { LanguageModelMiddleware } from "ai"
 * @import { Agent } from "./index.js"
 */

import { changedMessage, neutralMessage, resultOf } from "./ai-sdk-messages.js";
import { NexusError } from "./index.js";

/**
 * Return a middleware that shows the model what fits, and records each call. A call that fails records nothing.
 *
 * @param {Agent} agent Agent whose budget and settings the calls have.
 * @param {object} [options]
 * @param {string} [options.conversation] Id of the conversation; or `providerOptions.nexus.conversation` of a call.
 * @param {string} [options.model] Name by which Nexus has the model; by default the model's id.
 * @param {(error: unknown) => void} [options.onUnrecorded] Gets the error of a reply that could not be recorded; by
 *   default it is a warning. The conversation's next call records the reply.
 * @returns {LanguageModelMiddleware}
 */
export function nexusMiddleware(agent, { conversation = "", model: name = "", onUnrecorded = console.warn } = {}) {
  /**
   * @param {any} params Options of a model's call.
   * @param {string} modelId
   */
  async function fit(params, modelId) {
    const id = params.providerOptions?.nexus?.conversation ?? conversation;
    if (!id) throw new NexusError("bad_setting", "conversation missing (pass its id to nexusMiddleware)");
    const tools = [];
    const others = [params.responseFormat];
    for (const { type, inputSchema, ...tool } of params.tools ?? []) {
      if (type === "function") tools.push({ ...tool, input_schema: inputSchema });
      else others.push(tool);
    }
    const messages = params.prompt.map(neutralMessage);
    const reserve = Math.ceil(JSON.stringify(others).length / 4);
    const list = { conversation: id, model: name || modelId, messages, tools, reserve };
    const { contextId, shown } = await agent.fit(list, { signal: params.abortSignal });
    const prompt = shown.map(({ item = -1, message }) => {
      const own = params.prompt[item];
      return message ? changedMessage(message, own) : own;
    });
    return { contextId, params: { ...params, prompt } };
  }

  /**
   * Record a reply; a failure must not take it from the program.
   * @param {string} contextId
   * @param {any} reply Result of a model's call.
   */
  async function record(contextId, reply) {
    try {
      await agent.record({ contextId, result: resultOf(reply) });
    } catch (error) {
      onUnrecorded(error);
    }
  }

  return {
    specificationVersion: "v3",
    async wrapGenerate({ params, model }) {
      const call = await fit(params, model.modelId);
      const result = await model.doGenerate(call.params);
      await record(call.contextId, result);
      return result;
    },
    async wrapStream({ params, model }) {
      const call = await fit(params, model.modelId);
      const { stream, ...rest } = await model.doStream(call.params);
      const reply = new StreamedReply();
      const reader = new TransformStream({
        transform(part, controller) {
          reply.add(part);
          controller.enqueue(part);
        },
        flush: () => (reply.isWhole ? record(call.contextId, reply) : undefined),
      });
      return { ...rest, stream: stream.pipeThrough(reader) };
    },
  };
}

/** A reply, from the parts of its stream. */
class StreamedReply {
  /** @type {any[]} */
  content = [];
  isWhole = false;
  #hasFailed = false;
  #open = new Map();

  /** @param {any} part */
  add(part) {
    const [, type, step] = /^(text|reasoning)-(start|delta|end)$/.exec(part.type) ?? [];
    const metadata = part.providerMetadata ? { providerMetadata: part.providerMetadata } : {};
    if (step === "start") this.content.push(this.#open.set(part.id, { type, text: "" }).get(part.id));
    const open = this.#open.get(part.id);
    if (step && open) Object.assign(open, { text: open.text + (part.delta ?? "") }, metadata);
    else if (step) this.#hasFailed = true; // it was never started: the AI SDK says so
    else if (part.type === "response-metadata") this.response = part;
    else if (part.type === "finish") Object.assign(this, { usage: part.usage, finishReason: part.finishReason });
    else if (!part.type.startsWith("tool-input")) this.content.push(part);
    this.#hasFailed ||= part.type === "error";
    this.isWhole = part.type === "finish" && !this.#hasFailed;
  }
}
