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
import type { LanguageModelMiddleware } from "ai";
import type { Agent } from "./index.js";
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
export declare function nexusMiddleware(agent: Agent, { conversation, model: name, onUnrecorded }?: {
    conversation?: string;
    model?: string;
    onUnrecorded?: (error: unknown) => void;
}): LanguageModelMiddleware;
