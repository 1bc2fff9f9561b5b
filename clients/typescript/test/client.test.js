/** The client against a real server, whose model says "A GIN index." The variables NEXUS_URL and NEXUS_TOKEN name it. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { connect, createServer as createTcpServer } from "node:net";
import { test } from "node:test";
import { inspect } from "node:util";

import { Nexus, NexusError } from "nexus-context-engine";

const { NEXUS_URL: url, NEXUS_TOKEN: token } = process.env;
const nexus = new Nexus({ url, token });

/** A proxy that breaks its connections on demand. */
async function breakableProxy() {
  const { hostname, port } = new URL(url);
  const sockets = new Set();
  const server = createTcpServer((socket) => {
    const upstream = connect(Number(port), hostname);
    for (const [from, to] of [[socket, upstream], [upstream, socket]]) {
      sockets.add(from);
      from.on("data", (data) => to.write(data));
      from.on("error", () => undefined);
      from.on("close", () => (to.destroy(), sockets.delete(from)));
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const breakAll = () => sockets.forEach((socket) => socket.destroy());
  return { url: `http://127.0.0.1:${server.address().port}`, breakAll, close: () => (breakAll(), server.close()) };
}

/** A server that answers every request in one way. */
async function answering(answer) {
  const server = createServer(answer);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () => (server.closeAllConnections(), server.close());
  return { url: `http://127.0.0.1:${server.address().port}`, close };
}

const code = (expected, retryable = false) => (error) =>
  error instanceof NexusError && error.code === expected && error.retryable === retryable;

test("an agent is created, answers once per request id, and is listed", async () => {
  const agent = await nexus.createAgent({ agentId: "librarian", systemPrompt: "You are a librarian." });
  const first = await agent.send({ content: "Which index?", requestId: "mail-17" });
  assert.deepEqual(first, { requestId: "mail-17", content: "A GIN index." });
  assert.deepEqual(await agent.send({ content: "Which index?", requestId: "mail-17" }), first);
  const { messages, total } = await agent.getMessages();
  assert.equal(total, 2);
  assert.deepEqual(messages[0].parts.at(-1), { type: "text", text: "Which index?" });
  assert.ok((await agent.getTokens()).total > 0);
  assert.deepEqual(await agent.getContext(), { messageCount: 2, systemPrompt: true });
  assert.equal((await agent.explain({ turn: 1 })).session, "librarian");
  assert.equal((await agent.compact()).compacted, false);
  assert.equal((await agent.cancel({ requestId: "mail-17" })).cancelled, false);
  const fork = await agent.fork({ newAgentId: "reader" });
  assert.equal((await fork.getMessages()).total, 2);
  assert.deepEqual((await nexus.listAgents()).map((info) => info.agentId), ["librarian", "reader"]);
  assert.equal(await fork.shutdown(), true);
  assert.equal(await nexus.destroyAgent("reader"), true);
  assert.equal(await nexus.destroyAgent("reader"), false);
  assert.ok("methods" in (await nexus.discover()));
});

test("ids of any characters are paths of their own", async () => {
  for (const agentId of ["a b", "dm:Zoë", "100%", "?x=1#y", "日本"]) {
    const agent = await nexus.createAgent({ agentId });
    assert.equal((await agent.send({ content: "Hi" })).content, "A GIN index.");
  }
});

test("a program with its own loop begins, assembles and records", async () => {
  const agent = await nexus.createAgent({ agentId: "looper" });
  const tools = [{ type: "function", function: { name: "find", parameters: { type: "object", properties: { some_key: { type: "string" } } } } }];
  assert.equal((await agent.begin({ content: "Find it", requestId: 1, tools })).status, "pending");
  const first = await agent.assemble({ tools });
  assert.ok("some_key" in first.body.tools[0].function.parameters.properties, "keys of the program's own values stay");
  const call = { id: "c1", type: "function", function: { name: "find", arguments: '{"some_key":"x"}' } };
  const reply = { object: "chat.completion", choices: [{ finish_reason: "tool_calls", message: { role: "assistant", content: null, tool_calls: [call] } }] };
  const { toolCalls } = await agent.record({ reply, contextId: first.contextId });
  assert.deepEqual(toolCalls, [{ type: "tool_call", id: "c1", name: "find", arguments: '{"some_key":"x"}' }]);
  const second = await agent.assemble({ tools, results: [{ callId: "c1", content: "found" }] });
  assert.equal(second.body.messages.at(-1).content, "found");
  assert.equal((await agent.record({ reply: "It is there.", contextId: second.contextId })).status, "completed");
  await agent.begin({ content: "Again" });
  assert.equal((await agent.fail({ error: "no answer", kind: "timeout" })).status, "failed");
});

test("a whole list is mirrored", async () => {
  const agent = await nexus.createAgent({ agentId: "mirror" });
  const messages = [{ role: "user", content: "Which index?" }];
  const ctx = await agent.mirror({ messages, conversation: "c1" });
  assert.equal(ctx.action, "new");
  const { session } = await agent.record({ reply: "A GIN index.", contextId: ctx.contextId });
  const longer = [...messages, { role: "assistant", content: "A GIN index." }, { role: "user", content: "Why?" }];
  const next = await agent.mirror({ messages: longer, conversation: "c1" });
  assert.deepEqual([next.action, next.session], ["append", session]);
  assert.equal((await agent.mirror({ messages: longer, conversation: "c2" })).action, "new", "another conversation");
});

test("errors have a code, data and status, and say whether to try again", async () => {
  const agent = nexus.agent("nobody");
  await assert.rejects(agent.send({ content: "Hi" }), (error) => code("no_such_agent")(error) && error.status === 404);
  await assert.rejects(nexus.createAgent({ nonsense: 1 }), code("invalid_params"));
  await assert.rejects(nexus.call("nonsense", {}), code("method_not_found"));
  const known = await nexus.createAgent({ agentId: "known" });
  await known.send({ content: "Hi", requestId: 7 });
  await assert.rejects(known.send({ content: "Other", requestId: 7 }), (error) => code("idempotency_conflict")(error) && error.data.request_id === 7);
  await assert.rejects(known.send({ content: " " }), code("bad_setting"));
  await assert.rejects(new Nexus({ url, token: "wrong" }).listAgents(), code("wrong_token"));
  await assert.rejects(known.send({ content: "x".repeat(11 << 20) }), (error) => [413, 0].includes(error.status));
  await assert.rejects(agent.events().next(), code("no_such_agent"));
});

test("a client without a usable address or token is not made", () => {
  assert.throws(() => new Nexus({ url: "ftp://x", token: "t" }), code("bad_setting"));
  assert.throws(() => new Nexus({ url }), code("bad_setting"));
  assert.throws(() => new Nexus({ url, token: "two\nlines" }), code("bad_setting"));
});

test("the token is not shown", () => {
  assert.ok(!inspect(nexus, { depth: 9, showHidden: true }).includes(token));
  assert.ok(!JSON.stringify(nexus).includes(token));
});

test("answers that are none are errors", async () => {
  const page = await answering((_, response) => response.writeHead(502).end("<html>Bad gateway</html>"));
  const half = await answering((_, response) => response.writeHead(200, { "Content-Length": 100 }).write('{"resu') && response.socket.destroy());
  const never = await answering(() => undefined);
  await assert.rejects(new Nexus({ url: page.url, token }).listAgents(), code("bad_reply", true));
  await assert.rejects(new Nexus({ url: half.url, token }).listAgents(), code("connection", true));
  await assert.rejects(new Nexus({ url: "http://127.0.0.1:9", token }).listAgents(), code("connection", true));
  await assert.rejects(new Nexus({ url: never.url, token, timeoutMs: 50 }).listAgents(), code("timeout", true));
  await assert.rejects(new Nexus({ url: never.url, token }).listAgents({ timeoutMs: 50 }), code("timeout", true));
  await assert.rejects(new Nexus({ url: never.url, token }).listAgents({ signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
  await assert.rejects(new Nexus({ url: never.url, token }).listAgents({ signal: AbortSignal.abort("why") }), (error) => error === "why");
  for (const server of [page, half, never]) server.close();
});

test("an infinite timeout is none", async () => {
  assert.ok(await new Nexus({ url, token, timeoutMs: Infinity }).listAgents());
});

test("a stream has the events of a turn", async () => {
  const agent = await nexus.createAgent({ agentId: "streamer" });
  const events = agent.events();
  assert.equal((await events.next()).value.type, "open");
  const sending = agent.send({ content: "Which index?", requestId: "r1" });
  let text = "";
  for await (const event of events) {
    assert.deepEqual([event.agentId, event.requestIds], ["streamer", ["r1"]]);
    assert.match(event.eventId, /^\w+\.\d+$/);
    if (event.type === "token") text += event.text;
    if (event.type === "stream_end") break;
  }
  assert.equal(text, (await sending).content);
});

test("a stream whose connection breaks goes on behind its last event", async () => {
  const proxy = await breakableProxy();
  const agent = await nexus.createAgent({ agentId: "broken" });
  const events = new Nexus({ url: proxy.url, token }).agent("broken").events();
  await events.next();
  const seen = [];
  for (const requestId of ["r1", "r2", "r3"]) {
    const sending = agent.send({ content: requestId, requestId });
    for (;;) {
      const { value } = await events.next();
      seen.push(value);
      if (value.type === "token") proxy.breakAll(); // in the middle of the turn
      if (value.type === "stream_end") break;
    }
    await sending;
  }
  const reader = agent.events({ lastEventId: seen[0].eventId });
  const again = [(await reader.next()).value];
  while (again.length < seen.length) again.push((await reader.next()).value);
  await reader.return();
  assert.deepEqual(seen.map((event) => event.eventId), [...new Set(seen.map((event) => event.eventId))], "each event once");
  assert.deepEqual(again.slice(1), seen.slice(1), "every event");
  assert.equal(seen.filter((event) => event.type === "stream_end").length, 3);
  await events.return();
  proxy.close();
});

test("a stream that is not made again in time fails, and one that never opened at once", async () => {
  const proxy = await breakableProxy();
  await nexus.createAgent({ agentId: "gone" });
  const events = new Nexus({ url: proxy.url, token }).agent("gone").events({ reconnectMs: 600 });
  await events.next();
  proxy.close();
  await assert.rejects(events.next(), code("connection", true));
  await assert.rejects(new Nexus({ url: proxy.url, token }).agent("gone").events().next(), code("connection", true));
});

test("a signal ends a stream, also while it waits to connect again", async () => {
  const proxy = await breakableProxy();
  await nexus.createAgent({ agentId: "aborted" });
  const agent = new Nexus({ url: proxy.url, token }).agent("aborted");
  for (const breaks of [false, true]) {
    const controller = new AbortController();
    const events = agent.events({ signal: controller.signal });
    await events.next();
    if (breaks) proxy.close();
    setTimeout(() => controller.abort("enough"), 100);
    await assert.rejects(events.next(), (error) => error === "enough");
  }
});

test("a stream after an unknown event begins with a gap", async () => {
  const agent = await nexus.createAgent({ agentId: "gap" });
  const events = agent.events({ lastEventId: "00000000.7" });
  assert.equal((await events.next()).value.type, "gap");
  await events.return();
});

test("two clients with two tokens see their own agents alone", async () => {
  const other = new Nexus({ url, token: process.env.OTHER_TOKEN });
  await Promise.all([nexus.createAgent({ agentId: "shared" }), other.createAgent({ agentId: "shared" })]);
  await Promise.all([nexus.agent("shared").send({ content: "mine" }), other.agent("shared").send({ content: "theirs" })]);
  assert.ok(!JSON.stringify(await nexus.agent("shared").getMessages()).includes("theirs"));
  assert.deepEqual((await other.listAgents()).map((info) => info.agentId), ["shared"]);
});
