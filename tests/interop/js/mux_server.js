// A server of @matrixai/ws for tests. Prints its port; streams say what they want in
// their first line; what follows it in the same chunk is the first of the data.
//   echo      everything comes back
//   sink      read everything, answer with the number of bytes
//   stall     read nothing
//   fail N    give both halves up with code N
//   stop N    end the connection with code N
//   call      open a stream to the client, send it "called", return what it answers, or "refused"
'use strict';
const fs = require('node:fs');
const { WebSocketServer, events } = require('@matrixai/ws');
const { default: Logger, LogLevel } = require('@matrixai/logger');

const logger = new Logger('mux', LogLevel.SILENT, []);
const [key, cert] = process.argv.slice(2, 4).map((path) => fs.readFileSync(path, 'utf8'));
const config = JSON.parse(process.argv[4] ?? '{}');
const codes = {
  codeToReason: (_type, code) => Object.assign(new Error(`code ${code}`), { code }),
  reasonToCode: (_type, reason) => reason?.code ?? 0,
};

async function serve(stream, connection) {
  const reader = stream.readable.getReader();
  const { value } = await reader.read();
  const first = Buffer.from(value);
  const border = first.indexOf(10);
  const [verb, argument] = first.subarray(0, border).toString().split(' ');
  const rest = first.subarray(border + 1);
  if (verb === 'stall') return;
  if (verb === 'fail') {
    stream.cancel(Object.assign(new Error('asked to'), { code: Number(argument) }));
    return;
  }
  if (verb === 'stop') {
    await connection.stop({ errorCode: Number(argument), reason: 'asked to' });
    return;
  }
  const writer = stream.writable.getWriter();
  if (verb === 'call') {
    try {
      const back = await connection.newStream();
      const backWriter = back.writable.getWriter();
      await backWriter.write(Buffer.from('called'));
      await backWriter.close();
      for await (const chunk of back.readable) await writer.write(chunk);
    } catch {
      await writer.write(Buffer.from('refused'));
    }
  } else if (verb === 'echo') {
    if (rest.length) await writer.write(rest);
    for (let next = await reader.read(); !next.done; next = await reader.read()) await writer.write(next.value);
  } else if (verb === 'sink') {
    let size = rest.length;
    for (let next = await reader.read(); !next.done; next = await reader.read()) size += next.value.length;
    await writer.write(Buffer.from(String(size)));
  }
  await writer.close();
}

(async () => {
  const server = new WebSocketServer({ config: { key, cert, ...config }, logger, ...codes });
  server.addEventListener(events.EventWebSocketServerConnection.name, ({ detail: connection }) => {
    connection.addEventListener(events.EventWebSocketConnectionStream.name, ({ detail: stream }) => {
      serve(stream, connection).catch(() => {});
    });
  });
  await server.start({ host: '127.0.0.1', port: 0 });
  console.log(server.port);
  process.stdin.on('end', () => process.exit(0)).resume();
})();
