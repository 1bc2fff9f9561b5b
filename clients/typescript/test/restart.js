/** A stream and a send across a restart of the server: `node restart.js`; a line of input says that the server is back. */

import { once } from "node:events";
import { createInterface } from "node:readline";

import { Nexus } from "nexus-context-engine";

const lines = createInterface({ input: process.stdin });
const nexus = new Nexus({ url: process.env.NEXUS_URL, token: process.env.NEXUS_TOKEN });
const agent = await nexus.createAgent({ agentId: "lasting" });
const request = { content: "Which index?", requestId: "mail-17" };

const events = agent.events();
await events.next();
const sending = agent.send(request).catch((error) => error);
const types = [];

const reading = (async () => {
  for await (const event of events) {
    types.push(event.type);
    if (event.type === "stream_end") break;
  }
})();
await once(lines, "line");
const failure = await sending;
await reading;
const answer = await agent.send(request);
console.log(JSON.stringify({ failure: [failure.code, failure.retryable], types, answer: answer.content }));
lines.close();
