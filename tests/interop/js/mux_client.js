// A client of @matrixai/ws for tests, steered by commands (steered.js). Streams that the other side
// opens are echoed.
'use strict';
const crypto = require('node:crypto');
const fs = require('node:fs');
const WebSocket = require('ws');
const { WebSocketClient, WebSocketConnection, config: defaults, events } = require('@matrixai/ws');
const { default: Logger, LogLevel } = require('@matrixai/logger');
const { described, steer } = require('./steered');

const logger = new Logger('mux', LogLevel.SILENT, []);
const ca = fs.readFileSync(process.argv[2], 'utf8');
const codes = {
  codeToReason: (_type, code) => Object.assign(new Error(`code ${code}`), { code }),
  reasonToCode: (_type, reason) => reason?.code ?? 0,
};
const PIECE = 64 * 1024;
const connections = new Map();
const streams = new Map();

const coded = (code) => Object.assign(new Error('asked to'), { code });

async function echo(stream) {
  const writer = stream.writable.getWriter();
  for await (const chunk of stream.readable) await writer.write(chunk);
  await writer.close();
}

// Bytes that differ from place to place: one that is lost or doubled changes the digest.
function* pieces(size, most = PIECE) {
  for (let at = 0; at < size; at += most) {
    const piece = Buffer.alloc(Math.min(most, size - at));
    for (let i = 0; i < piece.length; i++) piece[i] = (at + i) % 251;
    yield piece;
  }
}

async function digest(readable) {
  const hash = crypto.createHash('sha256');
  let size = 0;
  for await (const chunk of readable) {
    hash.update(chunk);
    size += chunk.length;
  }
  return { size, sha256: hash.digest('hex') };
}

// Echoes of so many bytes from the other side; returns whether they came back the same.
async function round(connection, size, most) {
  const stream = await connection.newStream();
  const writer = stream.writable.getWriter();
  await writer.write(Buffer.from('echo\n'));
  const reading = digest(stream.readable);
  const hash = crypto.createHash('sha256');
  for (const piece of pieces(size, most)) {
    hash.update(piece);
    await writer.write(piece);
  }
  await writer.close();
  const found = await reading;
  await stream.closedP;
  return found.size === size && found.sha256 === hash.digest('hex');
}

function keep(on, connection) {
  const found = { connection, accepted: 0, pongs: 0, waiting: null };
  found.ended = new Promise((resolve) => {
    connection.addEventListener(events.EventWebSocketConnectionClose.name, ({ detail }) => resolve(described(detail)));
  });
  connection.addEventListener(events.EventWebSocketConnectionStream.name, ({ detail: stream }) => {
    found.accepted++;
    echo(stream).catch(() => {});
  });
  connection.socket.on('pong', () => {
    found.pongs++;
    found.waiting?.();
  });
  connections.set(on, found);
}

steer({
  async connect({ on, port, config }) {
    const client = await WebSocketClient.createWebSocketClient(
      { host: '127.0.0.1', port, config: { ca, ...config }, logger, ...codes },
      { timer: 5000 },
    );
    keep(on, client.connection);
  },
  // To any path, with a socket of ours: the library dials / only, and wss only.
  async dial({ on, url }) {
    const socket = new WebSocket(url, { ca });
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    const connection = new WebSocketConnection({
      type: 'client', connectionId: 0, socket, config: defaults.clientDefault, logger, ...codes,
    });
    await connection.start({ timer: 5000 });
    keep(on, connection);
  },
  // How many of these echoes came back wrong.
  async rounds({ on, size, count, most }) {
    const { connection } = connections.get(on);
    const found = await Promise.all(Array.from({ length: count }, () => round(connection, size, most)));
    return found.filter((same) => !same).length;
  },
  async open({ on, as, say }) {
    const stream = await connections.get(on).connection.newStream();
    const writer = stream.writable.getWriter();
    streams.set(as, { stream, writer, written: 0 });
    if (say !== undefined) await writer.write(Buffer.from(say + '\n'));
    return Number(stream.streamId);
  },
  // Begins to write so many bytes; `poured` waits for the end of that.
  async pour({ as, size }) {
    const state = streams.get(as);
    state.pouring = (async () => {
      for (const piece of pieces(size)) {
        await state.writer.write(piece);
        state.written += piece.length;
      }
    })();
    state.pouring.catch(() => {});
  },
  async poured({ as }) {
    await streams.get(as).pouring;
  },
  async written({ as }) {
    return streams.get(as).written;
  },
  async write({ as, text }) {
    await streams.get(as).writer.write(Buffer.from(text));
  },
  async send({ as, hex }) {
    await streams.get(as).writer.write(Buffer.from(hex, 'hex'));
  },
  // The next chunk, empty at the end.
  async take({ as }) {
    const reader = streams.get(as).stream.readable.getReader();
    const { value } = await reader.read();
    reader.releaseLock();
    return Buffer.from(value ?? []).toString('hex');
  },
  async end({ as }) {
    await streams.get(as).writer.close();
  },
  async text({ as }) {
    const parts = [];
    for await (const chunk of streams.get(as).stream.readable) parts.push(Buffer.from(chunk));
    return Buffer.concat(parts).toString();
  },
  async size({ as }) {
    return (await digest(streams.get(as).stream.readable)).size;
  },
  async abort({ as, code }) {
    await streams.get(as).writer.abort(coded(code));
  },
  async cancel({ as, code }) {
    await streams.get(as).stream.readable.cancel(coded(code));
  },
  async giveUp({ as, code }) {
    streams.get(as).stream.cancel(coded(code));
  },
  async over({ as }) {
    await streams.get(as).stream.closedP;
  },
  async live({ on }) {
    return connections.get(on).connection.streamMap.size;
  },
  async accepted({ on }) {
    return connections.get(on).accepted;
  },
  async pongs({ on, count }) {
    const found = connections.get(on);
    while (found.pongs < count) await new Promise((resolve) => (found.waiting = resolve));
  },
  async stop({ on, code, reason }) {
    await connections.get(on).connection.stop({ errorCode: code, reason });
  },
  async ended({ on }) {
    return await connections.get(on).ended;
  },
});
