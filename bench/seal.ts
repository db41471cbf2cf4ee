/**
 * `npm run bench:seal`: what sealing costs, in ratios of one run: the client's work for three candidates, the agent's work to open and to
 * seal a chunk, requests one after the other in clear and sealed, and unpaced streams in clear and sealed. `--requests N --streams N --tokens N`.
 * Absolute times are this machine's.
 */
import { parseArgs } from 'node:util';
import { KeyRing } from '../agent/seal/key-ring.ts';
import { SealOpener } from '../agent/seal/opener.ts';
import { sealedFetch } from '../clients/seal/index.ts';
import { type SealedRequest, seal } from '../clients/seal/seal.ts';
import { endpointById } from '../shared/openai/endpoints.ts';
import { MODEL, openHouse } from '../test/support/house.ts';
import { endAll } from '../test/support/processes.ts';
import { providerRoot } from '../test/support/provider-root.ts';
import { quantile } from './stats.ts';

const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '200' },
    streams: { type: 'string', default: '64' },
    tokens: { type: 'string', default: '2000' },
  },
});
const [requests = 0, streams = 0, tokens = 0] = [values.requests, values.streams, values.tokens].map(Number);

async function median(times: number, work: (n: number) => unknown): Promise<number> {
  const took: number[] = [];
  for (let n = 0; n < times; n++) {
    const from = performance.now();
    await work(n);
    took.push(performance.now() - from);
  }
  return quantile(took, 0.5);
}

/** Milliseconds: seal to three nodes, open at one, seal one token's event. */
async function work(): Promise<void> {
  const now = Date.now() / 1000;
  const chat = endpointById(1);
  if (chat === undefined) throw new Error('no chat endpoint');
  const rings = [1, 2, 3].map(() => new KeyRing(Date.now));
  const nodes = rings.map(({ current: { kid, publicKey, until } }) => {
    const key = new Uint8Array(publicKey);
    return { session: kid, provider: 'lab', mode: 'pinned' as const, kid, key, until };
  });
  const body = Buffer.from(JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'x'.repeat(2_000) }] }));
  const clear = { path: chat.path, model: 'm', stream: true, headers: [], body };
  const sealed: SealedRequest[] = [];
  const client = await median(requests, async () => sealed.push(await seal(clear, nodes, now)));
  const [ring = new KeyRing(Date.now)] = rings;
  const opener = new SealOpener(ring, Date.now);
  const openOne = (one: SealedRequest | undefined) => {
    if (one === undefined) throw new Error('nothing sealed');
    const headers = Object.entries(one.headers).map(([name, value]): [string, string] =>
      name === 'x-otela-seal-to' ? [name, value.split(', ')[0] ?? ''] : [name, value],
    );
    return opener.open({ headers, endpoint: chat, streaming: true }, one.body);
  };
  const { sealer } = openOne(sealed[0]);
  const agent = await median(sealed.length - 1, (n) => openOne(sealed[n + 1]));
  sealer.head(200, [], true);
  sealer.chunk(Buffer.alloc(0));
  const event = Buffer.alloc(246);
  const chunk = await median(5_000, () => sealer.chunk(event));
  console.log(`client, three candidates        ${client.toFixed(2)} ms (required: 3)`);
  console.log(`agent, to open                  ${agent.toFixed(2)} ms`);
  console.log(
    `agent, to seal a token's event  ${(chunk * 1000).toFixed(0)} µs, ${sealer.chunk(event).length} bytes for ${event.length}`,
  );
}

await work();
const root = await providerRoot('lab');
const house = await openHouse({ agentArgs: ['--delegate-file', root.delegateFile] });
const pins = { lab: root.pin };
/** Drained and not opened: what gateway and agent do, without this process's work. */
const UNOPENED = 418;
const drain: typeof fetch = async (input, init) => {
  const response = await fetch(input, init);
  if (init?.method !== 'POST') return response;
  await response.arrayBuffer();
  return new Response(null, { status: UNOPENED });
};
const fetches = { clear: fetch, sealed: sealedFetch({ pins }), unopened: sealedFetch({ pins, fetch: drain }) };
type How = keyof typeof fetches;

async function ask(how: How, standIn: object, stream: boolean): Promise<number> {
  const response = await fetches[how](`${house.base}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${house.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'x' }], stream, stand_in: standIn }),
  });
  if (!response.ok && response.status !== UNOPENED)
    throw new Error(`${how}: ${response.status} ${await response.text()}`);
  return (await response.arrayBuffer()).byteLength;
}

/** Seconds for all streams at once. */
async function flood(how: How): Promise<number> {
  const from = performance.now();
  await Promise.all(Array.from({ length: streams }, () => ask(how, { tokens }, true)));
  return (performance.now() - from) / 1000;
}

for (const how of ['clear', 'sealed'] as const) await ask(how, { tokens: 1 }, false);
const unary: Record<How, number[]> = { clear: [], sealed: [], unopened: [] };
for (let n = 0; n < requests; n++)
  for (const how of ['clear', 'sealed'] as const)
    unary[how].push(await median(1, () => ask(how, { tokens: 1 }, false)));
const [plain, sealed] = [quantile(unary.clear, 0.5), quantile(unary.sealed, 0.5)];
console.log(
  `one request, from end to end    clear ${plain.toFixed(2)} ms, sealed ${sealed.toFixed(2)} ms: ${(sealed - plain).toFixed(2)} ms more, the client's work included`,
);
const HOWS = ['clear', 'sealed', 'unopened'] as const;
const rounds: Record<How, number[]> = { clear: [], sealed: [], unopened: [] };
for (let round = 0; round < 3; round++) for (const how of HOWS) rounds[how].push(await flood(how));
const clear = quantile(rounds.clear, 0.5);
const [opened, unopened] = [clear / quantile(rounds.sealed, 0.5), clear / quantile(rounds.unopened, 0.5)];
console.log(
  `${streams} unpaced streams              of clear: ${unopened.toFixed(2)} by gateway and agent, ${opened.toFixed(2)} with this client, whose process is the engine's, too (required: 0.85 where the engine writes 8 events a read, 0.35 for one)`,
);
await endAll();
