// The JavaScript pair of the bench: `node bench.js serve key certificate` prints its two ports, of
// streams that echo and of calls; `node bench.js` is steered as `tests/bench/streams/program.py`.
'use strict';
const fs = require('node:fs');
const readline = require('node:readline');
const { WebSocketServer, WebSocketClient, events } = require('@matrixai/ws');
const rpc = require('@matrixai/rpc');
const { default: Logger, LogLevel } = require('@matrixai/logger');

const logger = new Logger('bench', LogLevel.SILENT, []);
const CHUNK = Buffer.alloc(64 * 1024);
const MESSAGE = Buffer.alloc(64);
const PARAMS = { name: 'an operation', twin: 1001, values: [1, 2, 3], text: 'x'.repeat(100) };
const WARM_UP_MS = 500;

const rpcStream = (s) => ({
  readable: s.readable,
  writable: s.writable,
  cancel: (r) => s.cancel(r),
  meta: undefined,
});
const rest = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

class Echo extends rpc.UnaryHandler {
  handle = async ({ metadata, ...params }) => params;
}

async function echo(stream) {
  const writer = stream.writable.getWriter();
  for await (const chunk of stream.readable) await writer.write(chunk);
  await writer.close();
}

async function listen(key, cert, take) {
  const server = new WebSocketServer({ config: { key, cert }, logger });
  server.addEventListener(events.EventWebSocketServerConnection.name, ({ detail: connection }) => {
    connection.addEventListener(events.EventWebSocketConnectionStream.name, ({ detail: stream }) => {
      take(stream);
    });
  });
  await server.start({ host: '127.0.0.1', port: 0 });
  return server.port;
}

async function serve(keyPath, certPath) {
  const [key, cert] = [keyPath, certPath].map((path) => fs.readFileSync(path, 'utf8'));
  const server = new rpc.RPCServer({ logger });
  await server.start({ manifest: { echo: new Echo({}) } });
  const streams = await listen(key, cert, (stream) => echo(stream).catch(() => {}));
  const calls = await listen(key, cert, (stream) => server.handleStream(rpcStream(stream)));
  console.log(streams, calls);
  process.stdin.on('end', () => process.exit(0)).resume();
}

let streams, caller;
let count = 0;
let isRunning = false;
const idle = [];

const kinds = {
  async chunks() {
    const stream = await streams.newStream();
    const writer = stream.writable.getWriter();
    const feeding = (async () => {
      while (isRunning) await writer.write(CHUNK);
      await writer.close();
    })();
    for await (const chunk of stream.readable) count += chunk.length;
    await feeding;
  },
  async messages() {
    const stream = await streams.newStream();
    const writer = stream.writable.getWriter();
    const reader = stream.readable.getReader();
    while (isRunning) {
      await writer.write(MESSAGE);
      let size = MESSAGE.length;
      while (size) size -= (await reader.read()).value.length;
      count++;
    }
    await writer.close();
    while (!(await reader.read()).done);
  },
  async calls() {
    while (isRunning) {
      const answer = await caller.methods.echo({ ...PARAMS });
      if (answer.twin !== PARAMS.twin) throw new Error('another answer');
      count++;
    }
  },
};

const verbs = {
  async open({ port, calls_port }) {
    const connect = (port) =>
      WebSocketClient.createWebSocketClient(
        { host: '127.0.0.1', port, config: { verifyPeer: false }, logger },
        { timer: 10000 },
      );
    streams = (await connect(port)).connection;
    const calling = (await connect(calls_port)).connection;
    caller = new rpc.RPCClient({
      manifest: { echo: new rpc.UnaryCaller() },
      streamFactory: async () => rpcStream(await calling.newStream()),
      logger,
    });
  },
  async run({ kind, workers, seconds }) {
    isRunning = true;
    const all = Array.from({ length: workers }, () => kinds[kind]());
    await rest(WARM_UP_MS);
    const [first, began, cpu] = [count, performance.now(), process.cpuUsage()];
    await rest(1000 * seconds);
    const counted = count - first;
    const wall_s = (performance.now() - began) / 1000;
    const { user, system } = process.cpuUsage(cpu);
    isRunning = false;
    await Promise.all(all);
    return { count: counted, wall_s, cpu_s: (user + system) / 1e6 };
  },
  async idle({ streams: number }) {
    for (let i = 0; i < number; i++) idle.push(await streams.newStream());
    return idle.length;
  },
  async memory() {
    return process.memoryUsage().rss;
  },
  async close() {},
};

async function client() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { call, args } = JSON.parse(line);
    let answer;
    try {
      answer = { ok: (await verbs[call](args)) ?? null };
    } catch (error) {
      answer = { error: `${call}: ${error}` };
    }
    console.log(JSON.stringify(answer));
  }
  process.exit(0);
}

process.argv[2] === 'serve' ? serve(...process.argv.slice(3)) : client();
