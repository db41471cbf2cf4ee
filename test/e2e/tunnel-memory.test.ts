/**
 * Small pieces that wait must not keep the large messages in memory in which they arrived with other streams'
 * megabytes.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, it } from 'vitest';
import { EngineRequestBody } from '../../agent/attempts/engine-request-body.ts';
import { ResponseBody } from '../../shared/attempts/response-body.ts';

setFlagsFromString('--expose-gc');
const gc: unknown = runInNewContext('gc');

const MESSAGE_BYTES = 256 * 1024;
const MESSAGES = 1_000;
const PIECE_BYTES = 100;

/** Total size of the array buffers of this process, in MiB. */
async function held(): Promise<number> {
  // Buffers are freed a turn or two after the collection that found them.
  for (let turn = 0; turn < 5; turn++) {
    if (typeof gc === 'function') gc();
    await new Promise((resolve) => setImmediate(resolve));
  }
  return process.memoryUsage().arrayBuffers / 1024 / 1024;
}

/** Memory that remains of the messages when `take` keeps a piece of each. */
async function growth(take: (piece: Uint8Array) => void): Promise<number> {
  const before = await held();
  for (let n = 0; n < MESSAGES; n++) take(new Uint8Array(MESSAGE_BYTES).subarray(1000, 1000 + PIECE_BYTES));
  return (await held()) - before;
}

it('in the gateway, where a client does not read', async () => {
  const body = new ResponseBody(
    () => undefined,
    () => undefined,
    () => undefined,
  );
  expect(await growth((piece) => body.push(piece))).toBeLessThan(10);
  body.end();
  expect(body.takeWhole()?.length).toBe(MESSAGES * PIECE_BYTES);
});

it('in the agent, where the engine does not take the request', async () => {
  const body = new EngineRequestBody([], undefined, () => undefined);
  let offset = 0;
  const grown = await growth((piece) => {
    body.data(offset, piece);
    offset += piece.length;
  });
  expect(grown).toBeLessThan(10);
  body.end(offset);
  const whole = body.open();
  expect(Buffer.isBuffer(whole) && whole.length).toBe(MESSAGES * PIECE_BYTES);
});
