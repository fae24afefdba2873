// A server of @matrixai/rpc over @matrixai/ws for tests. Prints its port. Its methods:
//   echo (unary), count (server stream), sum (client stream), duplex, raw, fail,
//   back (unary): calls the method of the client that the parameters name, returns its result
//   or how it failed.
'use strict';
const fs = require('node:fs');
const { WebSocketServer, events } = require('@matrixai/ws');
const rpc = require('@matrixai/rpc');
const { default: Logger, LogLevel } = require('@matrixai/logger');

const logger = new Logger('rpc', LogLevel.SILENT, []);
const [key, cert] = process.argv.slice(2, 4).map((path) => fs.readFileSync(path, 'utf8'));

class Echo extends rpc.UnaryHandler {
  handle = async (input) => {
    const { metadata, ...rest } = input;
    return rest;
  };
}
class Count extends rpc.ServerHandler {
  handle = async function* (input) {
    for (let i = 1; i <= input.to; i++) yield { i };
  };
}
class Sum extends rpc.ClientHandler {
  handle = async (input) => {
    let sum = 0;
    for await (const { value } of input) sum += value;
    return { sum };
  };
}
class Duplex extends rpc.DuplexHandler {
  handle = async function* (input) {
    for await (const { i } of input) yield { i: 10 * i };
  };
}
class Raw extends rpc.RawHandler {
  handle = async ([header, readable]) => [{ header: header.params }, readable];
}
class Fail extends rpc.UnaryHandler {
  handle = async () => {
    throw new TypeError('boom', { cause: new Error('inner') });
  };
}
class Back extends rpc.UnaryHandler {
  handle = async (input, _cancel, meta) => {
    try {
      return await meta.client.unaryCaller(input.method, input.params);
    } catch (error) {
      return { failed: { type: error.cause?.name, message: error.cause?.message } };
    }
  };
}

function rpcStream(stream, meta) {
  return { readable: stream.readable, writable: stream.writable, cancel: (r) => stream.cancel(r), meta };
}

(async () => {
  const server = new rpc.RPCServer({ logger });
  await server.start({
    manifest: {
      echo: new Echo({}),
      count: new Count({}),
      sum: new Sum({}),
      duplex: new Duplex({}),
      raw: new Raw({}),
      fail: new Fail({}),
      back: new Back({}),
    },
  });
  const sockets = new WebSocketServer({ config: { key, cert }, logger });
  sockets.addEventListener(events.EventWebSocketServerConnection.name, ({ detail: connection }) => {
    const client = new rpc.RPCClient({
      manifest: {},
      streamFactory: async () => rpcStream(await connection.newStream()),
      logger,
    });
    connection.addEventListener(events.EventWebSocketConnectionStream.name, ({ detail: stream }) => {
      server.handleStream(rpcStream(stream, { client }));
    });
  });
  await sockets.start({ host: '127.0.0.1', port: 0 });
  console.log(sockets.port);
  process.stdin.on('end', () => process.exit(0)).resume();
})();
