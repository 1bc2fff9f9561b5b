/**
 * Types of the methods of `nexus serve`, in snake_case as they are sent and returned by default.
 * Generated from the server's JSON Schemas by scripts/build_server_types.py.
 */

/** A new agent, and the path for its requests. */
export interface AgentCreated {
  agent_id: string;
  url: string;
}

/** The removed agent. `success` is false if there was none; its session stays. */
export interface AgentDestroyed {
  success: boolean;
  agent_id: string;
}

/** One agent of the list. */
export interface AgentInfo {
  agent_id: string;
  created_at: string;
  message_count: number;
  should_shutdown: boolean;
  parent_agent_id: string | null;
  model: string;
}

/** The agents of the token's tenant, oldest first. */
export interface AgentList {
  agents: AgentInfo[];
}

/** The next call of the open turn, behind the results of its tools. */
export interface Assemble {
  results?: CallResult[];
  tools?: { [key: string]: unknown }[];
  model?: string;
  format?: "anthropic" | "gemini" | "openai" | "responses" | null;
}

/** The request body to send to the provider, and its size. */
export interface AssembledBody {
  context_id: string;
  session: string;
  turn: number;
  model: string;
  provider: string;
  format: "anthropic" | "gemini" | "openai" | "responses";
  body: { [key: string]: unknown };
  tokens: number;
  available: number;
  warnings?: ContextWarning[];
  action?: "append" | "fork" | "new" | "repeat";
}

/** A user's message, to be answered by the caller's own loop. */
export interface Begin {
  content: string;
  request_id?: string | number | null;
  tools?: { [key: string]: unknown }[];
}

/** Result of a tool call. */
export interface CallResult {
  call_id: string;
  content: string;
  name?: string;
  is_error?: boolean;
}

/** The request to end. */
export interface Cancel {
  request_id: string | number;
}

/** The canceled request. `cancelled` is false, with a reason, if it was not under way. */
export interface CancelResult {
  cancelled: boolean;
  request_id: string | number;
  reason?: string;
}

/** A compaction now. */
export interface Compact {
  focus?: string;
}

/** The compaction, or the reason why there was none. */
export interface CompactResult {
  compacted: boolean;
  tokens_before?: number;
  tokens_after?: number;
  tokens_saved?: number;
  reason?: string;
}

/** The compaction ended. Tokens are the prompt's, before and after. */
export interface CompactionEnd {
  type: "compaction_end";
  tokens_before?: number;
  tokens_after?: number;
  method?: string;
  problem?: string;
}

/** Old messages are being replaced by a summary or left out, because the next call would not fit. */
export interface CompactionStart {
  type: "compaction_start";
  reason?: string;
}

/** Number of messages in the next context, and whether it has a system prompt. */
export interface ContextInfo {
  message_count: number;
  system_prompt: boolean;
}

/** A problem with one source: a truncated text, two files for one purpose, an invalid value. */
export interface ContextWarning {
  origin: string;
  text: string;
}

/** Settings of a new agent. An id whose session exists continues that session. */
export interface CreateAgent {
  model?: string;
  budget?: number | null;
  profile?: string;
  system_prompt?: string;
  role?: "manager" | "unified" | "worker";
  task?: string;
  manager?: string;
  manager_call?: string;
  persona?: string;
  principal?: string;
  user_profile?: { [key: string]: unknown };
  toolset?: string;
  permissions?: string[];
  capabilities?: string[] | null;
  skills?: string[];
  blocks?: { [key: string]: unknown };
  temperature?: number | null;
  top_p?: number | null;
  max_tokens?: number | null;
  thinking?: boolean | number | "high" | "low" | "medium" | null;
  stop?: string | string[] | null;
  tool_choice?: string | null;
  extra?: { [key: string]: unknown } | null;
  model_config?: { [key: string]: unknown };
  timezone?: string | number;
  strategy?: "digest" | "keep_user_turns" | "middle_out" | "oldest_first";
  pin_first_message?: boolean;
  max_tool_result_tokens?: number | null;
  calibrate?: boolean;
  run_mode?: "" | "repl" | "server";
  clock?: "" | "message" | "off" | "system";
  agent_id?: string | null;
  parent_agent_id?: string | null;
  if_exists?: "continue" | "error";
}

/** The agent to remove. */
export interface DestroyAgent {
  agent_id: string;
}

/** A recorded call; by default the next one. */
export interface Explain {
  turn?: number | null;
  call?: number | null;
}

/** One block, tool, message or image of a call, and its state. */
export interface ExplainedLine {
  state: "included" | "not applicable" | "omitted" | "summarized" | "truncated";
  kind: "block" | "event" | "framing" | "image" | "marker" | "message" | "summary" | "supplied" | "tool";
  slot: string;
  name: string;
  reason: string;
  tokens: number;
  full_tokens: number;
  place?: MessageRef | null;
  source?: string;
  text?: string;
}

/** A call explained. The lines are in the order of system slot, tools, history and message. */
export interface Explanation {
  session: string;
  call: string;
  model: string;
  provider: string;
  available: number;
  used: number;
  lines: ExplainedLine[];
  warnings?: string[];
}

/** The end of the open turn without a reply. */
export interface Fail {
  error: string;
  kind?: "aborted" | "auth" | "bad_reply" | "bad_request" | "connection" | "content" | "error" | "limit" | "overflow" | "overloaded" | "rate_limit" | "timeout";
  partial?: string;
  turn?: number;
}

/** The whole message list of a program that sends messages of its own types. */
export interface Fit {
  messages: ListMessage[];
  tools?: { [key: string]: unknown }[];
  model?: string;
  reserve?: number;
  conversation?: string;
}

/** The messages to send, in order, and their size. */
export interface FittedList {
  context_id: string;
  session: string;
  model: string;
  shown: ShownMessage[];
  tokens: number;
  available: number;
  action: "append" | "fork" | "new" | "repeat";
  warnings?: ContextWarning[];
}

/** A new agent with this one's settings and its history up to a turn. */
export interface Fork {
  new_agent_id?: string | null;
  turn?: number | null;
}

/** A range of the session's messages. */
export interface GetMessages {
  offset?: number;
  limit?: number;
}

/** An image, as data or by URL. */
export interface Image {
  type: "image";
  media_type: string;
  data?: string;
  url?: string;
  width?: number;
  height?: number;
  sha256?: string;
}

/** A neutral message of a program's list. */
export interface ListMessage {
  role: "assistant" | "system" | "tool" | "user";
  parts: (Text | Image | Thinking | ToolCall | ToolResult | Note | Unknown)[];
}

/** One message. */
export interface Message {
  role: "assistant" | "system" | "tool" | "user";
  parts: (Text | Image | Thinking | ToolCall | ToolResult | Note | Unknown)[];
  id?: string;
  at_ms?: number;
  run_id?: string;
  source?: string;
  model?: string;
  meta?: string;
  received?: string;
}

/** Messages as stored, those that no call shows any more included. */
export interface MessageList {
  messages: Message[];
  offset: number;
  total: number;
}

/** Position of a message: its entry's `seq` on the path, and its order within the entry. */
export interface MessageRef {
  seq: number;
  ord: number;
}

/** The whole message list of a program that keeps its own. */
export interface Mirror {
  messages: { [key: string]: unknown }[];
  tools?: { [key: string]: unknown }[];
  model?: string;
  format?: "anthropic" | "gemini" | "openai" | "responses" | null;
  reserve?: number;
  conversation?: string;
  window?: boolean;
}

/** A method without params. */
export interface NoParams {
}

/** Context that was sent before a user's text: event metadata or a memory block. */
export interface Note {
  type: "note";
  kind: "memory" | "moment";
  text: string;
  origin?: string;
}

/** The next piece of the model's thinking. */
export interface Reasoning {
  type: "reasoning";
  text: string;
}

/** The provider's reply. */
export interface RecordReply {
  reply?: { [key: string]: unknown } | string | null;
  context_id?: string;
  result?: ReplyResult | null;
}

/** The stored reply. `tool_calls` are to be run, and their results passed to `assemble`. */
export interface RecordResult {
  session: string;
  turn: number;
  status: string;
  tool_calls?: ToolCall[];
  warnings?: ContextWarning[];
}

/** A reply of a program whose messages are not a provider's. */
export interface ReplyResult {
  parts: (Text | Image | Thinking | ToolCall | ToolResult | Note | Unknown)[];
  usage?: TokenUsage;
  stop_reason?: string;
  model?: string;
}

/** A call of the model failed and is made again. It withdraws the tokens and the reasoning of the failed call. */
export interface Retry {
  type: "retry";
  kind: string;
  text: string;
  delay_s?: number;
}

/** A user's message. The same `request_id` again is answered from the ledger. */
export interface Send {
  content: string;
  request_id?: string | number | null;
}

/** The answer; without `content` if `cancel` ended the request. */
export interface SendResult {
  request_id: string | number;
  content?: string;
  cancelled?: boolean;
}

/** The server stops when the requests under way are answered. */
export interface ServerStopping {
  success: boolean;
  message: string;
}

/** A message to send. */
export interface ShownMessage {
  item?: number;
  message?: ListMessage;
}

/** The turn is complete and stored. */
export interface StreamEnd {
  type: "stream_end";
  stop_reason?: string;
  usage?: TokenUsage;
  cost_usd?: number | null;
  calls?: number;
}

/** The turn failed. What had arrived is stored with it. */
export interface StreamError {
  type: "stream_error";
  kind: string;
  text: string;
  retryable?: boolean;
}

/** A turn begins to run. */
export interface StreamStart {
  type: "stream_start";
  session: string;
  turn: number;
  model?: string;
  provider?: string;
}

/** Done. */
export interface Success {
  success: boolean;
}

/** Plain text. */
export interface Text {
  type: "text";
  text: string;
}

/** A model's reasoning. `signature` proves it to its provider; `redacted` is opaque data instead of the text. */
export interface Thinking {
  type: "thinking";
  text: string;
  signature?: string;
  redacted?: string;
}

/** The next piece of the reply's text. */
export interface Token {
  type: "token";
  text: string;
}

/** Tokens of the agent's next context. */
export interface TokenCounts {
  system: number;
  tools: number;
  messages: number;
  total: number;
  budget: number;
  available: number;
}

/** Tokens as reported by a provider; `input_tokens` is the whole prompt, cache reads and writes included. */
export interface TokenUsage {
  input_tokens?: number;
  output_tokens?: number;
  cache_read_tokens?: number;
  cache_write_tokens?: number;
  reasoning_tokens?: number;
  cache_write_1h_tokens?: number;
}

/** A tool call by the assistant. `arguments` is the text as received, usually a JSON object; never parsed on input. */
export interface ToolCall {
  type: "tool_call";
  id: string;
  name: string;
  arguments: string;
}

/** Result of a tool call: text and images. */
export interface ToolResult {
  type: "tool_result";
  call_id: string;
  content?: (Text | Image)[];
  name?: string;
  is_error?: boolean;
}

/** A tool call started, completed or failed. */
export interface ToolStatus {
  type: "tool_status";
  call_id: string;
  name: string;
  status: "completed" | "failed" | "started";
  text?: string;
}

/** A turn. `tool_calls` are without results so far. */
export interface TurnState {
  turn: number;
  status: string;
  tool_calls?: ToolCall[];
  warnings?: ContextWarning[];
}

/** A part of an unsupported kind, kept as the JSON text that was received. */
export interface Unknown {
  type: "unknown";
  kind: string;
  raw: string;
}

/** An event of an agent's turn: the data of a server-sent event. */
export type AgentEvent = (StreamStart | Token | Reasoning | Retry | ToolStatus | CompactionStart | CompactionEnd | StreamEnd | StreamError | { type: "open" | "gap" }) & {
  agent_id: string;
  request_ids?: (string | number)[];
};

/** Params and result of every method. Those of agents are at `/agent/ID`, or take an `agent_id`. */
export interface Methods {
  /** Create an agent, or continue an existing one; an id whose session exists continues that session. */
  create_agent: { params: CreateAgent; result: AgentCreated };
  /** List the agents, oldest first. */
  list_agents: { params: NoParams; result: AgentList };
  /** Remove an agent; its running requests end as canceled, and its session stays. */
  destroy_agent: { params: DestroyAgent; result: AgentDestroyed };
  /** Stop the server when running turns have ended. For servers of one tenant. */
  shutdown_server: { params: NoParams; result: ServerStopping };
  /** Send a user's message and wait for the answer. The same `request_id` again does not run again. */
  send: { params: Send; result: SendResult };
  /** Cancel a request under way: it ends as interrupted, with its partial reply. */
  cancel: { params: Cancel; result: CancelResult };
  /** End the agent's running requests as canceled and accept no more. */
  shutdown: { params: NoParams; result: Success };
  /** Return the tokens of the agent's next context, without its message. */
  get_tokens: { params: NoParams; result: TokenCounts };
  /** Return the number of messages in the agent's next context, and whether it has a system prompt. */
  get_context: { params: NoParams; result: ContextInfo };
  /** Return messages of the agent's session, oldest first, those that no call shows any more included. */
  get_messages: { params: GetMessages; result: MessageList };
  /** Replace older messages by a summary now. Nothing is deleted. */
  compact: { params: Compact; result: CompactResult };
  /** Create an agent with this one's settings and its history up to a turn. */
  fork: { params: Fork; result: AgentCreated };
  /** Explain every block, tool and message of a recorded call, or of the next one. */
  explain: { params: Explain; result: Explanation };
  /** Store a user's message, and begin its turn. The same `request_id` again is the same turn. */
  begin: { params: Begin; result: TurnState };
  /** Store results of tools, and assemble the request body of the open turn's next call. */
  assemble: { params: Assemble; result: AssembledBody };
  /** Store the reply to an assembled context. The same reply again adds nothing. */
  record: { params: RecordReply; result: RecordResult };
  /** End the open turn as failed, with its partial reply. */
  fail: { params: Fail; result: TurnState };
  /** Assemble the request body for a program that has the whole message list of its conversation. */
  mirror: { params: Mirror; result: AssembledBody };
  /** Say which messages to send, for a program that has its whole list in types of its own. */
  fit: { params: Fit; result: FittedList };
  "rpc.discover": { params: NoParams; result: { [key: string]: unknown } };
}

type CamelName<S extends string> = S extends `${infer Head}_${infer Rest}` ? `${Head}${Capitalize<CamelName<Rest>>}` : S;

/** A result or event with the header `Nexus-Case: camel`. Keys of your own values, such as request bodies, stay. */
export type Camel<T> = T extends (infer Item)[]
  ? Camel<Item>[]
  : T extends object
    ? { [K in keyof T as K extends string ? (string extends K ? K : CamelName<K>) : K]: Camel<T[K]> }
    : T;
