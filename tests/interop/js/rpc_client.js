// A client of @matrixai/rpc over @matrixai/ws for tests, steered by commands (steered.js). Its own
// methods, for calls back:
//   add (unary), count (server stream), fail, wait (unary; ends when its caller gives up),
//   confirm (unary; says yes from the second time on)
'use strict';
const fs = require('node:fs');
const WebSocket = require('ws');
const { WebSocketClient, WebSocketConnection, config, events } = require('@matrixai/ws');
const rpc = require('@matrixai/rpc');
const { default: Logger, LogLevel } = require('@matrixai/logger');
const { steer } = require('./steered');

const logger = new Logger('rpc', LogLevel.SILENT, []);
const ca = process.argv[2] && fs.readFileSync(process.argv[2], 'utf8');
const clients = new Map();
const calls = new Map();
const asked = [];
let aborted = 0;

class Add extends rpc.UnaryHandler {
  handle = async ({ a, b }) => ({ sum: a + b });
}
class Count extends rpc.ServerHandler {
  handle = async function* ({ to }) {
    for (let i = 1; i <= to; i++) yield { i };
  };
}
class Fail extends rpc.UnaryHandler {
  handle = async () => {
    throw new RangeError('not me', { cause: new TypeError('inner') });
  };
}
class Wait extends rpc.UnaryHandler {
  handle = (_input, _cancel, _meta, ctx) =>
    new Promise((_resolve, reject) => {
      ctx.signal.addEventListener('abort', () => {
        aborted++;
        reject(ctx.signal.reason);
      });
    });
}
class Confirm extends rpc.UnaryHandler {
  handle = async ({ text }) => ({ ok: asked.push(text) > 1 });
}

// Bound: the library calls `cancel` without its stream.
const bound = (stream) => ({
  readable: stream.readable,
  writable: stream.writable,
  cancel: (reason) => stream.cancel(reason),
  meta: undefined,
});

async function all(readable) {
  const found = [];
  for await (const result of readable) found.push(result);
  return found;
}

async function sendAll(writable, messages) {
  const writer = writable.getWriter();
  for (const message of messages) await writer.write(message);
  await writer.close();
}

async function keep(on, connection) {
  const server = new rpc.RPCServer({ logger });
  await server.start({
    manifest: { add: new Add({}), count: new Count({}), fail: new Fail({}), wait: new Wait({}), confirm: new Confirm({}) },
  });
  connection.addEventListener(events.EventWebSocketConnectionStream.name, ({ detail: stream }) => {
    server.handleStream(bound(stream));
  });
  const client = new rpc.RPCClient({
    manifest: {},
    streamFactory: async () => bound(await connection.newStream()),
    logger,
  });
  clients.set(on, { client, connection });
}

steer({
  async connect({ on, port }) {
    const { connection } = await WebSocketClient.createWebSocketClient(
      { host: '127.0.0.1', port, config: { ca }, logger },
      { timer: 5000 },
    );
    await keep(on, connection);
  },
  // To any path, with a socket of ours.
  async dial({ on, url, headers }) {
    const socket = new WebSocket(url, { ca, headers });
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    const connection = new WebSocketConnection({
      type: 'client', connectionId: 0, socket, config: config.clientDefault, logger,
    });
    await connection.start({ timer: 5000 });
    await keep(on, connection);
  },
  async asked() {
    return asked;
  },
  async unary({ on, method, params, timer, aborted: early }) {
    const signal = early ? AbortSignal.abort(new Error('too late')) : undefined;
    return await clients.get(on).client.unaryCaller(method, params, { timer, signal });
  },
  async server({ on, method, params, timer }) {
    return await all(await clients.get(on).client.serverStreamCaller(method, params, { timer }));
  },
  // Takes so many results, then no more.
  async first({ on, method, params, count }) {
    const readable = await clients.get(on).client.serverStreamCaller(method, params);
    const reader = readable.getReader();
    const found = [];
    while (found.length < count) found.push((await reader.read()).value);
    await reader.cancel(new Error('enough'));
    return found;
  },
  async client({ on, method, messages }) {
    const call = await clients.get(on).client.clientStreamCaller(method);
    const [result] = await Promise.all([call.output, sendAll(call.writable, messages)]);
    return result;
  },
  async duplex({ on, method, messages }) {
    const call = await clients.get(on).client.duplexStreamCaller(method);
    const [results] = await Promise.all([all(call.readable), sendAll(call.writable, messages)]);
    return results;
  },
  async raw({ on, method, params, parts }) {
    const call = await clients.get(on).client.rawStreamCaller(method, params);
    const [results] = await Promise.all([all(call.readable), sendAll(call.writable, parts.map((part) => Buffer.from(part)))]);
    return { answer: call.meta.result, text: Buffer.concat(results).toString() };
  },
  // Begins a call and sends its first message; `giveUp` ends it.
  async begin({ on, as, method, params }) {
    const call = await clients.get(on).client.duplexStreamCaller(method);
    await call.writable.getWriter().write(params);
    calls.set(as, call);
  },
  async giveUp({ as }) {
    calls.get(as).cancel(new Error('never mind'));
  },
  // A stream with these texts, one frame each, and what comes back on it up to its end.
  async texts({ on, texts }) {
    const stream = await clients.get(on).connection.newStream();
    const reading = all(stream.readable);
    await sendAll(stream.writable, texts.map((text) => Buffer.from(text)));
    return Buffer.concat(await reading).toString();
  },
  async aborted() {
    return aborted;
  },
  async live({ on }) {
    return clients.get(on).connection.streamMap.size;
  },
  async stop({ on }) {
    await clients.get(on).connection.stop();
  },
});
