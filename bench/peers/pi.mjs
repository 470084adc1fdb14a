// Drives pi-agent-core for bench/peers/pi.py: one JSON request a line, one JSON answer a line.
//
//   node pi.mjs <folder with node_modules> agent|loop|floor
//
// A scripted stream function gives messages that were made before the clock runs. Times are microseconds.
import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";
import { setMaxListeners } from "node:events";
import { performance } from "node:perf_hooks";
import { pathToFileURL } from "node:url";

const [home, kind] = process.argv.slice(2);
const scope = path.join(path.resolve(home), "node_modules", "@earendil-works");
const load = (name) => import(pathToFileURL(path.join(scope, name, "dist", "index.js")).href);
const { Agent, runAgentLoop } = await load("pi-agent-core");
const { createAssistantMessageEventStream, ToolCallArgumentsStream } = await load("pi-ai");
const version = JSON.parse(fs.readFileSync(path.join(scope, "pi-agent-core", "package.json"), "utf8")).version;
setMaxListeners(0); // thousands of tools listen to one signal

const now = () => performance.now() * 1000;
const yieldOnce = () => new Promise((resolve) => setImmediate(resolve));
let collecting = true;
/** As with Python: the garbage is collected before the clock runs, but not a hundred times while it warms up. */
const collect = () => collecting && globalThis.gc?.();
const HOUR = 3_600_000;
const PATIENCE = 10_000;
const timers = new Set();
const wait = (ms) =>
  new Promise((resolve) => {
    const timer = setTimeout(() => (timers.delete(timer), resolve()), ms);
    timers.add(timer);
  });
const waitOrAbort = (ms, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(() => (timers.delete(timer), resolve()), ms);
    timers.add(timer);
    signal?.addEventListener("abort", () => (clearTimeout(timer), timers.delete(timer), reject(new Error("aborted"))), { once: true });
  });

// ------------------------------------------------------------------ the model
const MODEL = {
  id: "scripted", name: "scripted", api: "scripted", provider: "scripted", baseUrl: "", reasoning: false, input: ["text"],
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 }, contextWindow: 1e6, maxTokens: 1e5,
};
const assistant = (content, stopReason) => ({
  role: "assistant", content, api: "scripted", provider: "scripted", model: "scripted", stopReason, timestamp: Date.now(),
  usage: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, totalTokens: 0, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 } },
});
const said = (text) => assistant([{ type: "text", text }], "stop");
const calling = (turn, count) =>
  assistant(Array.from({ length: count }, (_, i) => ({ type: "toolCall", id: `c${turn}-${i}`, name: "work", arguments: { i } })), "toolUse");

function scripted(script, crew) {
  const ready = script.map((step, turn) => (typeof step === "number" ? calling(turn, step) : said(step)));
  let at = 0;
  return (_model, context, options) => {
    crew.stamps?.push(now());
    crew.seen = context.messages;
    const stream = createAssistantMessageEventStream();
    if (options?.signal?.aborted) {
      const message = { ...assistant([], "aborted"), errorMessage: "aborted" };
      stream.push({ type: "error", reason: "aborted", error: message });
      return stream;
    }
    crew.requests++; // one with an aborted signal never leaves a provider
    const message = ready[at++];
    stream.push({ type: "start", partial: message });
    stream.push({ type: "done", reason: message.stopReason, message });
    return stream;
  };
}

const SCHEMA = { type: "object", properties: { i: { type: "integer" } }, required: ["i"] };
const tool = (execute, parameters = SCHEMA) => ({ name: "work", label: "work", description: "Works.", parameters, execute });
const text = (value) => ({ content: [{ type: "text", text: value }], details: {} });
const prompt = (value) => ({ role: "user", content: [{ type: "text", text: value }], timestamp: Date.now() });
const convert = (messages) => messages.filter((m) => ["system", "user", "assistant", "toolResult"].includes(m.role));

/** An agent, or the loop with what an agent would keep for it. */
function make(streamFn, tools, listener = async () => {}) {
  if (kind === "agent") {
    const agent = new Agent({ streamFn, initialState: { systemPrompt: "s", model: MODEL, tools } });
    agent.subscribe(listener);
    return { run: (words) => agent.prompt(words), abort: () => agent.abort(), messages: () => agent.state.messages };
  }
  const declared = tools.map(({ name, description, parameters }) => ({ name, description, parameters }));
  const kept = [{ role: "system", content: "s", toolsAdded: declared, timestamp: Date.now() }];
  let controller = new AbortController();
  const emit = async (event) => {
    if (event.type === "message_end") kept.push(event.message);
    await listener(event);
  };
  return {
    run: (words) => {
      controller = new AbortController();
      const context = { messages: [...kept], tools };
      return runAgentLoop([prompt(words)], context, { model: MODEL, convertToLlm: convert }, emit, controller.signal, streamFn);
    },
    abort: () => controller.abort(),
    messages: () => kept,
  };
}

function entries(messages) {
  const found = [];
  for (const m of messages) {
    if (m.role === "assistant") {
      const calls = m.content.filter((c) => c.type === "toolCall");
      for (const c of calls) found.push(["call", c.id, ""]);
      if (!calls.length) found.push(["text", "", ""]);
    } else if (m.role === "toolResult") found.push(["result", m.toolCallId, m.content.map((c) => c.text ?? "").join("")]);
    else found.push([m.role === "user" ? "user" : "other", "", ""]);
  }
  return found;
}

// ------------------------------------------------------------------ what is measured
async function fanout({ n, inner }) {
  if (kind === "floor") {
    collect();
    const begin = now();
    for (let k = 0; k < inner; k++) await Promise.all(Array.from({ length: n }, yieldOnce));
    return { us: now() - begin };
  }
  const work = tool(async () => (await yieldOnce(), text("ok")));
  const made = Array.from({ length: inner }, () => make(scripted([n, "done"], { requests: 0 }), [work]));
  collect();
  const begin = now();
  for (const one of made) await one.run("go");
  const us = now() - begin;
  for (const one of made)
    if (entries(one.messages()).filter((e) => e[0] === "result").length !== n) throw new Error("a result is missing");
  return { us };
}

async function turns({ n }) {
  const crew = { requests: 0, stamps: [] };
  const work = tool(async () => (await yieldOnce(), text("ok")));
  collect();
  const begin = now();
  if (kind === "floor") {
    for (let k = 0; k < n; k++) (crew.stamps.push(now()), await Promise.all([yieldOnce()]));
  } else await make(scripted([...Array(n).fill(1), "done"], crew), [work]).run("go");
  return { us: now() - begin, stamps: crew.stamps };
}

/** All deltas are pushed at once, as a fast producer would: nothing holds it back. */
async function streamed({ n, parts }) {
  let seen = 0, sent = 0, lead = 0, asked = 0;
  const wanted = parts ? "toolcall_delta" : "text_delta";
  const streamFn = () => {
    const stream = createAssistantMessageEventStream();
    if (asked++) {
      const last = said("done");
      stream.push({ type: "start", partial: last });
      stream.push({ type: "done", reason: "stop", message: last });
      return stream;
    }
    const message = assistant([], parts ? "toolUse" : "stop");
    stream.push({ type: "start", partial: message });
    if (parts) {
      const call = { type: "toolCall", id: "c0-0", name: "work", arguments: {} };
      message.content.push(call);
      stream.push({ type: "toolcall_start", contentIndex: 0, partial: message });
      const parser = new ToolCallArgumentsStream(); // what pi-ai's own providers parse with
      for (const part of parts) {
        call.arguments = parser.append(part);
        sent++;
        stream.push({ type: "toolcall_delta", contentIndex: 0, delta: part, partial: message });
      }
      call.arguments = parser.finish().arguments;
      stream.push({ type: "toolcall_end", contentIndex: 0, toolCall: call, partial: message });
    } else {
      const block = { type: "text", text: "" };
      message.content.push(block);
      stream.push({ type: "text_start", contentIndex: 0, partial: message });
      for (let k = 0; k < n; k++) {
        block.text += "word ";
        sent++;
        stream.push({ type: "text_delta", contentIndex: 0, delta: "word ", partial: message });
      }
      stream.push({ type: "text_end", contentIndex: 0, content: block.text, partial: message });
    }
    stream.push({ type: "done", reason: message.stopReason, message });
    return stream;
  };
  const schema = { type: "object", properties: { n: { type: "integer" }, items: { type: "array", items: {} } }, required: ["n", "items"] };
  const agent = make(streamFn, [tool(async () => text("ok"), schema)], async (event) => {
    if (event.type === "message_update" && event.assistantMessageEvent.type === wanted) lead = Math.max(lead, sent - ++seen);
  });
  collect();
  const begin = now();
  await agent.run("go");
  return { us: now() - begin, delivered: seen, max_lead: lead };
}

/** The body of the tools of a plan; tools listen to their signal unless the plan says otherwise. */
function bodyOf(plan, crew, ready) {
  return async (i, signal) => {
    crew.started.push(i);
    if (crew.started.length === plan.n) ready();
    const finished = () => (crew.completed.push(i), text(`value-${i}`));
    try {
      if (plan.body === "half" && i % 2 === 0) return finished();
      if (plan.body === "swallow") await waitOrAbort(HOUR, signal).catch(() => wait(plan.seconds * 1000));
      else if (plan.body === "raise") {
        await crew.all;
        if (i === Math.floor(plan.n / 2)) throw new Error("one of N raises");
        await wait(plan.seconds * 1000);
      } else if (plan.body === "deaf") await wait(plan.seconds * 1000);
      else await waitOrAbort(HOUR, signal);
      return finished();
    } finally {
      if (plan.body === "clean-up") await wait((plan.seconds * 1000 * ((i % 10) + 1)) / 10);
      crew.unwound.push(now());
    }
  };
}

async function cut({ plan }) {
  const crew = { started: [], unwound: [], completed: [], requests: 0 };
  let ready;
  crew.all = new Promise((resolve) => (ready = resolve));
  const body = bodyOf(plan, crew, ready);
  const controller = new AbortController();
  let outcome = "hung", over = 0, handle;
  if (kind === "floor") {
    handle = { run: () => Promise.allSettled(Array.from({ length: plan.n }, (_, i) => body(i, controller.signal))), abort: () => controller.abort() };
  } else {
    let work = tool(async (_id, args, signal) => body(args.i, signal));
    for (let level = 1; level < plan.depth; level++) {
      const inner = work;
      // The library does not link a nested agent to the one around it: the tool passes the signal on by hand.
      work = tool(async (_id, _args, signal) => {
        const agent = make(scripted([1, "done"], { requests: 0 }), [inner]);
        signal?.addEventListener("abort", () => agent.abort(), { once: true });
        await agent.run("go");
        return text("ok");
      });
    }
    handle = make(scripted([plan.depth > 1 ? 1 : plan.n, "done", "again"], crew), [work]);
  }
  const run = handle.run("go").then(() => (outcome = "returned"), (error) => (outcome = `raised ${error.name}`)).then(() => (over = now()));
  await Promise.race([crew.all, wait(PATIENCE)]);
  await wait(20);
  collect();
  const asked = crew.requests, begin = now();
  if (plan.act === "abort") handle.abort();
  await Promise.race([run, wait(PATIENCE)]);
  const answer = {
    us: (over || now()) - begin, outcome, started: crew.started.length, orphans: crew.started.length - crew.unwound.length,
    unwound_us: Math.max(0, ...[...crew.unwound.slice(-1)].map((at) => at - begin)), tasks_left: 0, requests_after: crew.requests - asked,
    completed: crew.completed, history: handle.messages ? entries(handle.messages()) : null, again: null, late_us: 0,
  };
  if (plan.again && over && handle.messages) {
    const before = crew.requests;
    const how = await handle.run("again").then(() => "returned", (error) => `raised ${error.name}: ${error.message}`);
    answer.again = { outcome: how, requests: crew.requests - before, seen: entries(crew.seen) };
  }
  return answer;
}

const operations = { fanout, turns, streamed, cut };
const warmed = new Set();
console.log(JSON.stringify({ version, node: process.version }));
for await (const line of readline.createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let answer;
  try {
    const work = operations[request.op];
    const size = `${request.op} ${request.n} ${request.parts?.length}`;
    if (request.op !== "cut" && !warmed.has(size)) {
      // The compiler of V8 needs many runs before it has compiled what is measured.
      warmed.add(size);
      collecting = false;
      const units = Math.max(1, (request.n ?? request.parts.length) * (request.inner ?? 1));
      for (let k = Math.min(100, Math.ceil(10_000 / units)); k > 0; k--) await work(request);
    }
    collecting = true;
    answer = await work(request);
  } catch (error) {
    answer = { error: String(error?.stack ?? error).slice(0, 400) };
  }
  for (const timer of timers) clearTimeout(timer);
  timers.clear();
  console.log(JSON.stringify(answer));
}
