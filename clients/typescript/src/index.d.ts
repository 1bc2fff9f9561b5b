/**
 * Client of `nexus serve` for node 18 or newer and browsers. Names are in camelCase; types come from the server's schemas.
 *
 * @module
 * @import { AgentEvent, Camel, Methods } from "./server.d.ts"
 */
import type { AgentEvent, Camel, Methods } from "./server.d.ts";
export type Params<M extends keyof Methods> = Camel<Methods[M]["params"]>;
export type Result<M extends keyof Methods> = Camel<Methods[M]["result"]>;
export type CallOptions = {
    /**
     * Ends the wait with the signal's reason. The server may have begun; `cancel` ends a turn.
     */
    signal?: AbortSignal | undefined;
    /**
     * Milliseconds after which the call fails with the code `timeout`; by default the client's.
     */
    timeoutMs?: number | undefined;
};
export type StreamOptions = {
    /**
     * Ends the stream with the signal's reason.
     */
    signal?: AbortSignal | undefined;
    /**
     * `eventId` of the last event that the reader has; by default the stream begins now.
     */
    lastEventId?: string | undefined;
    /**
     * Milliseconds for which a broken connection is tried again; 60,000 by default.
     */
    reconnectMs?: number | undefined;
};
export type StreamedEvent = Camel<AgentEvent> & {
    eventId: string;
};
/**
 * Params of a method.
 * @template {keyof Methods} M
 * @typedef {Camel<Methods[M]["params"]>} Params
 */
/**
 * Result of a method.
 * @template {keyof Methods} M
 * @typedef {Camel<Methods[M]["result"]>} Result
 */
/**
 * Options of one call.
 * @typedef {object} CallOptions
 * @property {AbortSignal | undefined} [signal] Ends the wait with the signal's reason. The server may have begun; `cancel` ends a turn.
 * @property {number | undefined} [timeoutMs] Milliseconds after which the call fails with the code `timeout`; by default the client's.
 */
/**
 * Options of a stream.
 * @typedef {object} StreamOptions
 * @property {AbortSignal | undefined} [signal] Ends the stream with the signal's reason.
 * @property {string | undefined} [lastEventId] `eventId` of the last event that the reader has; by default the stream begins now.
 * @property {number | undefined} [reconnectMs] Milliseconds for which a broken connection is tried again; 60,000 by default.
 */
/**
 * An event of an agent's turns, with the id from which a later stream continues.
 * @typedef {Camel<AgentEvent> & { eventId: string }} StreamedEvent
 */
/** An error of the server, or of the connection to it. */
export declare class NexusError extends Error {
    /** Stable code, such as `no_such_agent`, `connection` or `timeout`. */
    code: string;
    /** The server's data of the error. */
    data: {
        [key: string]: unknown;
    };
    /** HTTP status of the answer; 0 without one. */
    status: number;
    /** Whether the same call may succeed later. With a `requestId` it never runs twice. */
    retryable: boolean;
    /**
     * @param {string} code Stable code that programs compare.
     * @param {string} message
     * @param {{ data?: { [key: string]: unknown }, status?: number, cause?: unknown }} [details]
     */
    constructor(code: string, message: string, { data, status, cause }?: {
        data?: {
            [key: string]: unknown;
        };
        status?: number;
        cause?: unknown;
    });
}
/** A client of one server and token. */
export declare class Nexus {
    #private;
    /**
     * @param {object} options
     * @param {string | undefined} [options.url] Address of the server.
     * @param {string} options.token Token of the server's token file.
     * @param {number | undefined} [options.timeoutMs] Milliseconds after which a call fails; 30 minutes by default, as a turn may take long.
     * @param {typeof globalThis.fetch} [options.fetch]
     */
    constructor({ url, token, timeoutMs, fetch }: {
        url?: string | undefined;
        token: string;
        timeoutMs?: number | undefined;
        fetch?: typeof globalThis.fetch;
    });
    /**
     * Return the client of an agent, without a request.
     * @param {string} agentId
     */
    agent(agentId: string): Agent;
    /**
     * Create an agent, or continue an existing one with `ifExists: "continue"`.
     * @param {Params<"create_agent">} [settings]
     * @param {CallOptions} [options]
     */
    createAgent(settings?: Params<"create_agent">, options?: CallOptions): Promise<Agent>;
    /**
     * Return the agents, oldest first.
     * @param {CallOptions} [options]
     */
    listAgents(options?: CallOptions): Promise<{
        agentId: string;
        createdAt: string;
        messageCount: number;
        model: string;
        parentAgentId: string | null;
        shouldShutdown: boolean;
    }[]>;
    /**
     * Remove an agent, and return whether there was one; its session stays.
     * @param {string} agentId
     * @param {CallOptions} [options]
     */
    destroyAgent(agentId: string, options?: CallOptions): Promise<boolean>;
    /**
     * Stop the server when running turns have ended.
     * @param {CallOptions} [options]
     */
    shutdownServer(options?: CallOptions): Promise<{
        message: string;
        success: boolean;
    }>;
    /**
     * Return the OpenRPC document of the server's methods.
     * @param {CallOptions} [options]
     */
    discover(options?: CallOptions): Promise<{
        [x: string]: unknown;
    }>;
    /**
     * Call a method. Throws NexusError, and the reason of an aborted signal.
     * @template {keyof Methods} M
     * @param {M} method
     * @param {Params<M>} params
     * @param {CallOptions & { path?: string }} [options]
     * @returns {Promise<Result<M>>}
     */
    call<M extends keyof Methods>(method: M, params: Params<M>, { path, signal, timeoutMs }?: CallOptions & {
        path?: string;
    }): Promise<Result<M>>;
    /**
     * Yield the events of a path once, until the connection ends.
     * @param {string} path
     * @param {string} lastEventId
     * @param {AbortSignal | undefined} [signal]
     * @returns {AsyncGenerator<StreamedEvent, void, undefined>}
     */
    stream(path: string, lastEventId: string, signal?: AbortSignal | undefined): AsyncGenerator<StreamedEvent, void, undefined>;
}
/** A client of one agent. Each method takes the params of docs/server.md, and options of the call. */
export declare class Agent {
    #private;
    agentId: string;
    /**
     * @param {Nexus} client
     * @param {string} agentId
     */
    constructor(client: Nexus, agentId: string);
    /**
     * Call a method of the agent.
     * @template {keyof Methods} M
     * @param {M} method
     * @param {Params<M>} params
     * @param {CallOptions} [options]
     */
    call<M extends keyof Methods>(method: M, params: Params<M>, options?: CallOptions): Promise<Camel<Methods[M]["result"]>>;
    /**
     * Send a user's message and wait for the answer. The same `requestId` again does not run again.
     * @param {Params<"send">} params
     * @param {CallOptions} [options]
     */
    send(params: Params<"send">, options?: CallOptions): Promise<{
        cancelled?: boolean;
        content?: string;
        requestId: string | number;
    }>;
    /**
     * Cancel a request under way.
     * @param {Params<"cancel">} params
     * @param {CallOptions} [options]
     */
    cancel(params: Params<"cancel">, options?: CallOptions): Promise<{
        cancelled: boolean;
        reason?: string;
        requestId: string | number;
    }>;
    /**
     * Yield the events of the agent's turns. A broken connection is made again, and continues behind its last event.
     *
     * The first event is `open`, or `gap` where the server has not all events behind `lastEventId`; a `gap` may come later
     * too, as after a restart of the server. `getMessages` then has the messages.
     * @param {StreamOptions} [options]
     * @returns {AsyncGenerator<StreamedEvent, void, undefined>}
     */
    events({ signal, lastEventId, reconnectMs }?: StreamOptions): AsyncGenerator<StreamedEvent, void, undefined>;
    /**
     * Return the tokens of the next context.
     * @param {CallOptions} [options]
     */
    getTokens(options?: CallOptions): Promise<{
        available: number;
        budget: number;
        messages: number;
        system: number;
        tools: number;
        total: number;
    }>;
    /**
     * Return the number of messages of the next context, and whether it has a system prompt.
     * @param {CallOptions} [options]
     */
    getContext(options?: CallOptions): Promise<{
        messageCount: number;
        systemPrompt: boolean;
    }>;
    /**
     * Return messages of the session, oldest first; a negative offset counts from the newest.
     * @param {Params<"get_messages">} [params]
     * @param {CallOptions} [options]
     */
    getMessages(params?: Params<"get_messages">, options?: CallOptions): Promise<{
        messages: {
            atMs?: number;
            id?: string;
            meta?: string;
            model?: string;
            parts: ({
                data?: string;
                height?: number;
                mediaType: string;
                sha256?: string;
                type: "image";
                url?: string;
                width?: number;
            } | {
                kind: "memory" | "moment";
                origin?: string;
                text: string;
                type: "note";
            } | {
                text: string;
                type: "text";
            } | {
                redacted?: string;
                signature?: string;
                text: string;
                type: "thinking";
            } | {
                arguments: string;
                id: string;
                name: string;
                type: "tool_call";
            } | {
                callId: string;
                content?: ({
                    data?: string;
                    height?: number;
                    mediaType: string;
                    sha256?: string;
                    type: "image";
                    url?: string;
                    width?: number;
                } | {
                    text: string;
                    type: "text";
                })[];
                isError?: boolean;
                name?: string;
                type: "tool_result";
            } | {
                kind: string;
                raw: string;
                type: "unknown";
            })[];
            received?: string;
            role: "assistant" | "system" | "tool" | "user";
            runId?: string;
            source?: string;
        }[];
        offset: number;
        total: number;
    }>;
    /**
     * Replace older messages by a summary now.
     * @param {Params<"compact">} [params]
     * @param {CallOptions} [options]
     */
    compact(params?: Params<"compact">, options?: CallOptions): Promise<{
        compacted: boolean;
        reason?: string;
        tokensAfter?: number;
        tokensBefore?: number;
        tokensSaved?: number;
    }>;
    /**
     * Create an agent with this one's settings and its history up to a turn.
     * @param {Params<"fork">} [params]
     * @param {CallOptions} [options]
     */
    fork(params?: Params<"fork">, options?: CallOptions): Promise<Agent>;
    /**
     * Explain a recorded call, or the next one.
     * @param {Params<"explain">} [params]
     * @param {CallOptions} [options]
     */
    explain(params?: Params<"explain">, options?: CallOptions): Promise<{
        available: number;
        call: string;
        lines: {
            fullTokens: number;
            kind: "block" | "event" | "framing" | "image" | "marker" | "message" | "summary" | "supplied" | "tool";
            name: string;
            place?: {
                ord: number;
                seq: number;
            } | null;
            reason: string;
            slot: string;
            source?: string;
            state: "included" | "not applicable" | "omitted" | "summarized" | "truncated";
            text?: string;
            tokens: number;
        }[];
        model: string;
        provider: string;
        session: string;
        used: number;
        warnings?: string[];
    }>;
    /**
     * End the agent's running requests and accept no more.
     * @param {CallOptions} [options]
     */
    shutdown(options?: CallOptions): Promise<boolean>;
    /**
     * Store a user's message, and begin its turn for a loop of this program. The same `requestId` again is the same turn.
     * @param {Params<"begin">} params
     * @param {CallOptions} [options]
     */
    begin(params: Params<"begin">, options?: CallOptions): Promise<{
        status: string;
        toolCalls?: {
            arguments: string;
            id: string;
            name: string;
            type: "tool_call";
        }[];
        turn: number;
        warnings?: {
            origin: string;
            text: string;
        }[];
    }>;
    /**
     * Store results of tools, and assemble the request body of the open turn's next call.
     * @param {Params<"assemble">} [params]
     * @param {CallOptions} [options]
     */
    assemble(params?: Params<"assemble">, options?: CallOptions): Promise<{
        action?: "append" | "fork" | "new" | "repeat";
        available: number;
        body: {
            [x: string]: unknown;
        };
        contextId: string;
        format: "anthropic" | "gemini" | "openai" | "responses";
        model: string;
        provider: string;
        session: string;
        tokens: number;
        turn: number;
        warnings?: {
            origin: string;
            text: string;
        }[];
    }>;
    /**
     * Store the reply to an assembled context. The same reply again adds nothing.
     * @param {Params<"record">} params
     * @param {CallOptions} [options]
     */
    record(params: Params<"record">, options?: CallOptions): Promise<{
        session: string;
        status: string;
        toolCalls?: {
            arguments: string;
            id: string;
            name: string;
            type: "tool_call";
        }[];
        turn: number;
        warnings?: {
            origin: string;
            text: string;
        }[];
    }>;
    /**
     * End the open turn as failed.
     * @param {Params<"fail">} params
     * @param {CallOptions} [options]
     */
    fail(params: Params<"fail">, options?: CallOptions): Promise<{
        status: string;
        toolCalls?: {
            arguments: string;
            id: string;
            name: string;
            type: "tool_call";
        }[];
        turn: number;
        warnings?: {
            origin: string;
            text: string;
        }[];
    }>;
    /**
     * Assemble the request body for a program that has its whole message list.
     * @param {Params<"mirror">} params
     * @param {CallOptions} [options]
     */
    mirror(params: Params<"mirror">, options?: CallOptions): Promise<{
        action?: "append" | "fork" | "new" | "repeat";
        available: number;
        body: {
            [x: string]: unknown;
        };
        contextId: string;
        format: "anthropic" | "gemini" | "openai" | "responses";
        model: string;
        provider: string;
        session: string;
        tokens: number;
        turn: number;
        warnings?: {
            origin: string;
            text: string;
        }[];
    }>;
    /**
     * Return which messages to send, for a program that has its whole list in types of its own.
     * @param {Params<"fit">} params
     * @param {CallOptions} [options]
     */
    fit(params: Params<"fit">, options?: CallOptions): Promise<{
        action: "append" | "fork" | "new" | "repeat";
        available: number;
        contextId: string;
        model: string;
        session: string;
        shown: {
            item?: number;
            message?: {
                parts: ({
                    data?: string;
                    height?: number;
                    mediaType: string;
                    sha256?: string;
                    type: "image";
                    url?: string;
                    width?: number;
                } | {
                    kind: "memory" | "moment";
                    origin?: string;
                    text: string;
                    type: "note";
                } | {
                    text: string;
                    type: "text";
                } | {
                    redacted?: string;
                    signature?: string;
                    text: string;
                    type: "thinking";
                } | {
                    arguments: string;
                    id: string;
                    name: string;
                    type: "tool_call";
                } | {
                    callId: string;
                    content?: ({
                        data?: string;
                        height?: number;
                        mediaType: string;
                        sha256?: string;
                        type: "image";
                        url?: string;
                        width?: number;
                    } | {
                        text: string;
                        type: "text";
                    })[];
                    isError?: boolean;
                    name?: string;
                    type: "tool_result";
                } | {
                    kind: string;
                    raw: string;
                    type: "unknown";
                })[];
                role: "assistant" | "system" | "tool" | "user";
            };
        }[];
        tokens: number;
        warnings?: {
            origin: string;
            text: string;
        }[];
    }>;
}
