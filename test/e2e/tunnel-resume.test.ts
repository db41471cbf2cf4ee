/** What a client must not notice: its answer's object evicted, its node's socket cut. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chatBody } from '../support/house.ts';
import { endAll } from '../support/processes.ts';
import { type Bench, openWorkshop, type Workshop } from '../support/tunnel/workshop.ts';

let shop: Workshop;
beforeAll(async () => {
  shop = await openWorkshop();
});
afterAll(endAll);

/** Reads an answer to its end, calling `at` once when `bytes` of it have come. */
async function readWith(response: Response, bytes: number, at: () => Promise<void> | void): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let length = 0;
  let called = false;
  if (response.body === null) throw new Error('no body');
  for await (const piece of response.body) {
    pieces.push(Buffer.from(piece));
    length += piece.length;
    if (called || length < bytes) continue;
    called = true;
    await at();
  }
  expect(called).toBe(true);
  return Buffer.concat(pieces);
}

const stream = (standIn: object) => chatBody({ id: 'same', ...standIn }, { stream: true });

describe('an object that is evicted', () => {
  let bench: Bench;
  beforeAll(async () => {
    bench = await shop.addNode();
  });

  it('crashes in mid-stream and leaves the stream whole', async () => {
    const expected = await (await shop.ask('/v1/chat/completions', stream({ tokens: 60 }))).text();
    const before = (await shop.settled(bench, 1)).length;
    const calls = bench.engine.requests.length;
    const response = await shop.ask('/v1/chat/completions', stream({ tokens: 60, tokensPerSecond: 40 }));
    const text = await readWith(response, expected.length / 3, () => shop.crash(bench));
    expect(text.toString()).toBe(expected);
    expect(bench.engine.requests.length).toBe(calls + 1);
    const stored = await shop.settled(bench, before + 1);
    expect(stored).toHaveLength(before + 1);
    expect(stored[0]).toMatchObject({ completion: 60, complete: true, aborted: false, estimated: false });
  });
});
