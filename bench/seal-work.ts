/** The cost of only sealing and opening: `work` of `bench/seal.ts`. */
import { KeyRing } from '../agent/seal/seal-key-ring.ts';
import { SealOpener } from '../agent/seal/seal-opener.ts';
import { type SealedRequest, seal } from '../clients/seal/seal-request.ts';
import { endpointById } from '../shared/openai/endpoints.ts';
import { quantile } from './stats.ts';

async function median(times: number, work: (n: number) => unknown): Promise<number> {
  const took: number[] = [];
  for (let n = 0; n < times; n++) {
    const from = performance.now();
    await work(n);
    took.push(performance.now() - from);
  }
  return quantile(took, 0.5);
}

const CHUNKS = 100_000;
const TURN = 256;

/**
 * CPU time of sealing one chunk. It includes the time of the allocator and the garbage collector, which a median would
 * leave out.
 */
async function cpuOfChunk(work: () => unknown): Promise<number> {
  const before = process.cpuUsage();
  for (let n = 0; n < CHUNKS; n += TURN) {
    for (let at = 0; at < TURN; at++) work();
    await new Promise(setImmediate);
  }
  const { user, system } = process.cpuUsage(before);
  return (user + system) / CHUNKS;
}

/**
 * Prints the milliseconds to seal a request to three nodes, to open it at a node, and to seal the event of one token.
 */
export async function sealWork(requests: number): Promise<void> {
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
  const chunk = await cpuOfChunk(() => sealer.chunk(event));
  console.log(`client, three candidates        ${client.toFixed(2)} ms (required: 3)`);
  console.log(`agent, to open                  ${agent.toFixed(2)} ms`);
  const bytes = sealer.chunk(event).length;
  console.log(`agent, to seal a token's event  ${chunk.toFixed(1)} µs of CPU, ${bytes} bytes for ${event.length}`);
}
