/**
 * Client of `nexus serve` for node 18 or newer and browsers. Names are in camelCase; types come from the server's schemas.
 *
 * @module
 * @import { AgentEvent, Camel, Methods } from "./server.d.ts"
 */

const TURN_MS = 1_800_000;
/** Milliseconds without a byte after which a stream's connection counts as broken: the server sends one every 15 s. */
const SILENCE_MS = 45_000;
/** Longer timers fire at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const FIRST_DELAY_MS = 250;
const LONGEST_DELAY_MS = 8_000;
const RETRYABLE_STATUS = new Set([408, 429, 502, 503, 504]);
const RETRYABLE_CODES = new Set(["connection", "ledger_busy", "ledger_unavailable", "server_stopped", "session_busy", "timeout"]);

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
export class NexusError extends Error {
  /**
   * @param {string} code Stable code that programs compare.
   * @param {string} message
   * @param {{ data?: { [key: string]: unknown }, status?: number, cause?: unknown }} [details]
   */
  constructor(code, message, { data = {}, status = 0, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "NexusError";
    /** Stable code, such as `no_such_agent`, `connection` or `timeout`. */
    this.code = code;
    /** The server's data of the error. */
    this.data = data;
    /** HTTP status of the answer; 0 without one. */
    this.status = status;
    /** Whether the same call may succeed later. With a `requestId` it never runs twice. */
    this.retryable = RETRYABLE_STATUS.has(status) || RETRYABLE_CODES.has(code);
  }
}

/** A client of one server and token. */
export class Nexus {
  #url;
  #token;
  #timeoutMs;
  #fetch;
  #lastId = 0;

  /**
   * @param {object} options
   * @param {string | undefined} [options.url] Address of the server.
   * @param {string} options.token Token of the server's token file.
   * @param {number | undefined} [options.timeoutMs] Milliseconds after which a call fails; 30 minutes by default, as a turn may take long.
   * @param {typeof globalThis.fetch} [options.fetch]
   */
  constructor({ url = "http://127.0.0.1:8765", token, timeoutMs = TURN_MS, fetch = globalThis.fetch }) {
    if (!/^https?:\/\/[^/]/.test(url)) throw new NexusError("bad_setting", `server address '${url}' invalid (use http://127.0.0.1:8765)`);
    if (!/^[\x21-\x7e]+$/.test(token ?? "")) throw new NexusError("bad_setting", "token missing or invalid (`nexus serve` says where it is)");
    this.#url = url.replace(/\/+$/, "");
    this.#token = token;
    this.#timeoutMs = timeoutMs;
    this.#fetch = fetch;
  }

  /**
   * Return the client of an agent, without a request.
   * @param {string} agentId
   */
  agent(agentId) {
    return new Agent(this, agentId);
  }

  /**
   * Create an agent, or continue an existing one with `ifExists: "continue"`.
   * @param {Params<"create_agent">} [settings]
   * @param {CallOptions} [options]
   */
  async createAgent(settings = {}, options) {
    return this.agent((await this.call("create_agent", settings, options)).agentId);
  }

  /**
   * Return the agents, oldest first.
   * @param {CallOptions} [options]
   */
  async listAgents(options) {
    return (await this.call("list_agents", {}, options)).agents;
  }

  /**
   * Remove an agent, and return whether there was one; its session stays.
   * @param {string} agentId
   * @param {CallOptions} [options]
   */
  async destroyAgent(agentId, options) {
    return (await this.call("destroy_agent", { agentId }, options)).success;
  }

  /**
   * Stop the server when running turns have ended.
   * @param {CallOptions} [options]
   */
  shutdownServer(options) {
    return this.call("shutdown_server", {}, options);
  }

  /**
   * Return the OpenRPC document of the server's methods.
   * @param {CallOptions} [options]
   */
  discover(options) {
    return this.call("rpc.discover", {}, options);
  }

  /**
   * Call a method. Throws NexusError, and the reason of an aborted signal.
   * @template {keyof Methods} M
   * @param {M} method
   * @param {Params<M>} params
   * @param {CallOptions & { path?: string }} [options]
   * @returns {Promise<Result<M>>}
   */
  async call(method, params, { path = "/rpc", signal, timeoutMs = this.#timeoutMs } = {}) {
    this.#lastId += 1;
    const body = jsonOf({ jsonrpc: "2.0", id: this.#lastId, method, params });
    const wait = new Wait(signal, timeoutMs);
    try {
      const response = await this.#request(path, { method: "POST", body, signal: wait.signal }, { "Content-Type": "application/json" });
      const answer = readAnswer(await response.text(), response.status);
      if (answer.error) throw errorOf(answer.error, response.status);
      return /** @type {Result<M>} */ (answer.result);
    } catch (error) {
      throw wait.failure(error);
    } finally {
      wait.end();
    }
  }

  /**
   * Yield the events of a path once, until the connection ends.
   * @param {string} path
   * @param {string} lastEventId
   * @param {AbortSignal | undefined} [signal]
   * @returns {AsyncGenerator<StreamedEvent, void, undefined>}
   */
  async *stream(path, lastEventId, signal) {
    const wait = new Wait(signal, SILENCE_MS);
    /** @type {ReadableStreamDefaultReader<string> | undefined} */
    let reader;
    try {
      /** @type {{ [name: string]: string }} */
      const headers = { Accept: "text/event-stream" };
      if (lastEventId) headers["Last-Event-ID"] = lastEventId;
      const response = await this.#request(path, { signal: wait.signal }, headers);
      if (!response.ok || !response.body) throw errorOf(readAnswer(await response.text(), response.status).error, response.status);
      reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        wait.restart();
        const frames = (text + value).split("\n\n");
        text = frames.pop() ?? "";
        for (const frame of frames) {
          const event = readEvent(frame);
          if (event) yield event;
        }
      }
    } catch (error) {
      throw wait.failure(error);
    } finally {
      wait.end();
      wait.close();
      await reader?.cancel().catch(() => undefined);
    }
  }

  /**
   * @param {string} path
   * @param {RequestInit} init
   * @param {{ [name: string]: string }} headers
   */
  #request(path, init, headers) {
    const own = { Authorization: `Bearer ${this.#token}`, "Nexus-Case": "camel" };
    const fetch = this.#fetch; // a browser's fetch must not be called as a method of another object
    return fetch(this.#url + path, { ...init, headers: { ...own, ...headers }, cache: "no-store", redirect: "error" });
  }
}

/** A client of one agent. Each method takes the params of docs/server.md, and options of the call. */
export class Agent {
  #client;
  #path;

  /**
   * @param {Nexus} client
   * @param {string} agentId
   */
  constructor(client, agentId) {
    this.#client = client;
    this.agentId = agentId;
    this.#path = `/agent/${encodeURIComponent(agentId)}`;
  }

  /**
   * Call a method of the agent.
   * @template {keyof Methods} M
   * @param {M} method
   * @param {Params<M>} params
   * @param {CallOptions} [options]
   */
  call(method, params, options) {
    return this.#client.call(method, params, { ...options, path: this.#path });
  }

  /**
   * Send a user's message and wait for the answer. The same `requestId` again does not run again.
   * @param {Params<"send">} params
   * @param {CallOptions} [options]
   */
  send(params, options) {
    return this.call("send", params, options);
  }

  /**
   * Cancel a request under way.
   * @param {Params<"cancel">} params
   * @param {CallOptions} [options]
   */
  cancel(params, options) {
    return this.call("cancel", params, options);
  }

  /**
   * Yield the events of the agent's turns. A broken connection is made again, and continues behind its last event.
   *
   * The first event is `open`, or `gap` where the server has not all events behind `lastEventId`; a `gap` may come later
   * too, as after a restart of the server. `getMessages` then has the messages.
   * @param {StreamOptions} [options]
   * @returns {AsyncGenerator<StreamedEvent, void, undefined>}
   */
  async *events({ signal, lastEventId = "", reconnectMs = 60_000 } = {}) {
    let last = lastEventId;
    let isOpen = false;
    let brokenAt = 0;
    let delayMs = FIRST_DELAY_MS;
    for (;;) {
      try {
        for await (const event of this.#client.stream(`${this.#path}/events`, last, signal)) {
          brokenAt = 0;
          delayMs = FIRST_DELAY_MS;
          last = event.eventId;
          if (event.type !== "open" || !isOpen) yield event;
          isOpen = true;
        }
      } catch (error) {
        if (!(error instanceof NexusError) || !error.retryable || !isOpen) throw error;
        brokenAt ||= Date.now();
        if (Date.now() - brokenAt + delayMs > reconnectMs) throw error;
      }
      await pause(delayMs, signal);
      delayMs = Math.min(2 * delayMs, LONGEST_DELAY_MS);
    }
  }

  /**
   * Return the tokens of the next context.
   * @param {CallOptions} [options]
   */
  getTokens(options) {
    return this.call("get_tokens", {}, options);
  }

  /**
   * Return the number of messages of the next context, and whether it has a system prompt.
   * @param {CallOptions} [options]
   */
  getContext(options) {
    return this.call("get_context", {}, options);
  }

  /**
   * Return messages of the session, oldest first; a negative offset counts from the newest.
   * @param {Params<"get_messages">} [params]
   * @param {CallOptions} [options]
   */
  getMessages(params = {}, options) {
    return this.call("get_messages", params, options);
  }

  /**
   * Replace older messages by a summary now.
   * @param {Params<"compact">} [params]
   * @param {CallOptions} [options]
   */
  compact(params = {}, options) {
    return this.call("compact", params, options);
  }

  /**
   * Create an agent with this one's settings and its history up to a turn.
   * @param {Params<"fork">} [params]
   * @param {CallOptions} [options]
   */
  async fork(params = {}, options) {
    return this.#client.agent((await this.call("fork", params, options)).agentId);
  }

  /**
   * Explain a recorded call, or the next one.
   * @param {Params<"explain">} [params]
   * @param {CallOptions} [options]
   */
  explain(params = {}, options) {
    return this.call("explain", params, options);
  }

  /**
   * End the agent's running requests and accept no more.
   * @param {CallOptions} [options]
   */
  async shutdown(options) {
    return (await this.call("shutdown", {}, options)).success;
  }

  /**
   * Store a user's message, and begin its turn for a loop of this program. The same `requestId` again is the same turn.
   * @param {Params<"begin">} params
   * @param {CallOptions} [options]
   */
  begin(params, options) {
    return this.call("begin", params, options);
  }

  /**
   * Store results of tools, and assemble the request body of the open turn's next call.
   * @param {Params<"assemble">} [params]
   * @param {CallOptions} [options]
   */
  assemble(params = {}, options) {
    return this.call("assemble", params, options);
  }

  /**
   * Store the reply to an assembled context. The same reply again adds nothing.
   * @param {Params<"record">} params
   * @param {CallOptions} [options]
   */
  record(params, options) {
    return this.call("record", params, options);
  }

  /**
   * End the open turn as failed.
   * @param {Params<"fail">} params
   * @param {CallOptions} [options]
   */
  fail(params, options) {
    return this.call("fail", params, options);
  }

  /**
   * Assemble the request body for a program that has its whole message list.
   * @param {Params<"mirror">} params
   * @param {CallOptions} [options]
   */
  mirror(params, options) {
    return this.call("mirror", params, options);
  }

  /**
   * Return which messages to send, for a program that has its whole list in types of its own.
   * @param {Params<"fit">} params
   * @param {CallOptions} [options]
   */
  fit(params, options) {
    return this.call("fit", params, options);
  }
}

/** The end of a wait: the caller's signal, or a time without news. */
class Wait {
  #caller;
  #ms;
  #controller = new AbortController();
  #isLate = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #stop = () => this.#controller.abort();

  /**
   * @param {AbortSignal | undefined} caller
   * @param {number} ms
   */
  constructor(caller, ms) {
    this.#caller = caller;
    this.#ms = ms;
    caller?.throwIfAborted();
    caller?.addEventListener("abort", this.#stop);
    this.restart();
  }

  get signal() {
    return this.#controller.signal;
  }

  restart() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#isLate = true;
      this.#stop();
    }, Math.min(this.#ms, LONGEST_TIMER_MS));
  }

  end() {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener("abort", this.#stop);
  }

  /** End the connection too. */
  close() {
    this.#stop();
  }

  /**
   * Return what a failure of the connection is to the caller.
   * @param {unknown} error
   */
  failure(error) {
    if (error instanceof NexusError) return error;
    if (this.#caller?.aborted) return this.#caller.reason;
    if (this.#isLate) return new NexusError("timeout", `no answer within ${this.#ms / 1000} s`);
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const text = cause instanceof Error ? cause.message || cause.name : String(cause);
    return new NexusError("connection", `server not reached: ${text}`, { cause: error });
  }
}

/**
 * Return JSON in which half a surrogate pair, as of an emoji that was cut, is U+FFFD: UTF-8 has none.
 * @param {unknown} value
 */
function jsonOf(value) {
  const json = JSON.stringify(value);
  if (!/\\ud[89a-f]/.test(json)) return json;
  return JSON.stringify(value, (_, item) => (typeof item === "string" ? item.replace(/\p{Surrogate}/gu, "\ufffd") : item));
}

/**
 * @param {string} text
 * @param {number} status
 * @returns {{ result?: unknown, error?: { message?: string, data?: { [key: string]: unknown } } }}
 */
function readAnswer(text, status) {
  try {
    const answer = JSON.parse(text);
    if ("result" in answer || "error" in answer) return answer;
  } catch {
    // a proxy's page, or an answer that broke off
  }
  throw new NexusError("bad_reply", `server answered ${status} without a result`, { status });
}

/**
 * @param {{ message?: string, data?: { [key: string]: unknown } } | undefined} error
 * @param {number} status
 */
function errorOf(error, status) {
  const data = error?.data ?? {};
  return new NexusError(String(data.code ?? "error"), error?.message ?? `server answered ${status}`, { data, status });
}

/**
 * @param {string} frame
 * @returns {StreamedEvent | undefined} Nothing for a comment.
 */
function readEvent(frame) {
  const fields = new Map(frame.split("\n").map((line) => /** @type {const} */ ([line.split(":", 1)[0], line.slice(line.indexOf(":") + 2)])));
  const data = fields.get("data");
  return data === undefined ? undefined : { ...JSON.parse(data), eventId: fields.get("id") ?? "" };
}

/**
 * @param {number} ms
 * @param {AbortSignal | undefined} [signal]
 * @returns {Promise<void>}
 */
function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop);
  });
}
