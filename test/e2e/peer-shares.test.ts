/**
 * Two institutions load one node of A: users of A at A's gateway, users of B at B's. Limits of B's part make its requests
 * wait, and no request of either fails.
 */
import { afterEach, expect, it } from 'vitest';
import { z } from 'zod';
import { startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { atEnd, endAll, eventually } from '../support/processes.ts';
import { chatBody, MODEL } from '../support/test-cluster.ts';

afterEach(endAll);

/** Answers that the engine computes at the same time. */
const SLOTS = 4;
/** Clients of each institution. The engine's queue is never empty while those of one institution run. */
const CLIENTS = 12;
/** Answers of A's users before a measurement, and during it. */
const [START_ANSWERS, ANSWERS] = [20, 60];
const LONG_MS = 180_000;

const admittedSchema = z.object({ issuers: z.array(z.object({ name: z.string(), root: z.string() })) });

async function rootOf(gateway: Gateway): Promise<string> {
  const response = await fetch(`${gateway.url}/agent/admit`, {
    method: 'POST',
    headers: { authorization: `Bearer ${await gateway.createJoinToken('probe', 'probe')}` },
    body: JSON.stringify({ protocol: 2, public_key: Buffer.alloc(32, 7).toString('base64url') }),
  });
  const { issuers } = admittedSchema.parse(await response.json());
  return issuers.find(({ name }) => name === 'local')?.root ?? '';
}

/** Clients that ask again as soon as they have an answer, and count what they get. */
class Clients {
  answered = 0;
  readonly failures: string[] = [];
  #ended = false;
  readonly #running: Promise<void>[];

  constructor(url: string, key: string) {
    this.#running = Array.from({ length: CLIENTS }, () => this.#run(url, key));
  }

  async #run(url: string, key: string): Promise<void> {
    while (!this.#ended) {
      const response = await fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify(chatBody({ tokens: 10, delayMs: 20 })),
      });
      const text = await response.text();
      if (response.status === 200) this.answered++;
      else this.failures.push(`${response.status} ${text}`);
    }
  }

  /** Resolves when each client has its last answer. */
  async stop(): Promise<void> {
    this.#ended = true;
    await Promise.all(this.#running);
  }
}

/** Returns B's part of the answers while both load the node. */
async function partOfB(limits: object): Promise<number> {
  const [a, b] = await Promise.all([Gateway.start(), Gateway.start()]);
  await b.admin('POST', 'peers', { name: 'a', root: await rootOf(a), url: a.url });
  await a.admin('POST', 'peers', { name: 'b', root: await rootOf(b), url: b.url });
  await a.admin('PATCH', 'settings', { peer_limits: { b: limits } });
  const engine = await startEngine({ models: [MODEL], slots: SLOTS });
  atEnd(() => engine.close());
  const token = await a.createJoinToken('lab', 'alps');
  await startAgent({ gateways: [a.url], token, engineUrl: engine.url });
  await Promise.all([a.serving(1), b.serving(1)]);
  const key = await b.createKey('trusting', { trusted_providers: ['lab@a'] });
  const ours = new Clients(a.url, await a.createKey());
  const theirs = new Clients(b.url, key);
  const more = (count: number) => {
    const from = ours.answered;
    return eventually(`${count} answers of A`, 60_000, () => (ours.answered >= from + count ? true : undefined));
  };
  await more(START_ANSWERS);
  const before = { ours: ours.answered, theirs: theirs.answered };
  await more(ANSWERS);
  const [own, peer] = [ours.answered - before.ours, theirs.answered - before.theirs];
  // Waiting requests of B are answered when A's have ended.
  await ours.stop();
  const left = theirs.answered;
  await eventually('answers of B', 60_000, () => (theirs.answered > left + 2 * CLIENTS ? true : undefined));
  await theirs.stop();
  expect(ours.failures).toEqual([]);
  expect(theirs.failures).toEqual([]);
  const part = peer / (own + peer);
  console.log(`${JSON.stringify(limits)}: ${own} answers of A, ${peer} of B: ${(100 * part).toFixed(0)} %`);
  return part;
}

it(
  'a share or a lower priority makes requests of a peer wait, and no request fails',
  async () => {
    expect(await partOfB({})).toBeGreaterThan(0.35);
    await endAll();
    const share = await partOfB({ share: 0.2 });
    expect(share).toBeGreaterThan(0.05);
    expect(share).toBeLessThan(0.25);
    await endAll();
    // In moments without a waiting request, a lower priority uses the free places.
    expect(await partOfB({ priority: -1 })).toBeLessThan(0.3);
  },
  LONG_MS,
);
