// A program that a test steers: it reads commands as JSON lines, {"id", "verb", ...}, and writes an
// answer for each, {"id", "value"} or {"id", "error"}. Commands run at once, in the order they come.
'use strict';
const readline = require('node:readline');

// What a test may want to know of an error, with its causes.
function described(error) {
  if (!(error instanceof Error)) return { value: error ?? null };
  const { name, message, code, data, metadata, cause } = error;
  return {
    name,
    message,
    code,
    errorCode: data?.errorCode,
    reason: data?.reason,
    command: metadata?.command,
    cause: cause === undefined ? null : described(cause),
  };
}

function answer(message) {
  process.stdout.write(JSON.stringify(message) + '\n');
}

function steer(verbs) {
  process.on('uncaughtException', (error) => {
    console.error('uncaught', error);
    process.exit(3);
  });
  const lines = readline.createInterface({ input: process.stdin });
  lines.on('line', async (line) => {
    const { id, verb, ...given } = JSON.parse(line);
    try {
      answer({ id, value: (await verbs[verb](given)) ?? null });
    } catch (error) {
      answer({ id, error: described(error) });
    }
  });
  lines.on('close', () => process.exit(0));
}

module.exports = { described, steer };
