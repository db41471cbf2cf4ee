/**
 * `npm run bench:seal`: what sealing costs, in ratios of one run by turns: the client's work for three candidates, the agent's work to open
 * and to seal a chunk, requests one after the other, and unpaced streams, in clear and sealed. Engine and client are processes of their own.
 * `of clear` is by wall time, and by the CPU time of gateway and agent, which other work on the machine does not change much.
 * `--requests N --streams N --events N --rounds N --paced N`. Absolute times are this machine's.
 */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import * as z from 'zod';
import { KeyRing } from '../agent/seal/key-ring.ts';
import { SealOpener } from '../agent/seal/opener.ts';
import { type SealedRequest, seal } from '../clients/seal/seal.ts';
import { endpointById } from '../shared/openai/endpoints.ts';
import { startAgent } from '../test/support/agent.ts';
import { Gateway } from '../test/support/gateway.ts';
import { endAll, Managed } from '../test/support/processes.ts';
import { providerRoot } from '../test/support/provider-root.ts';
import { NODE, ROOT } from '../test/support/where.ts';
import { ranFor } from './ran-for.ts';
import type { Round } from './seal-client.ts';
import { quantile } from './stats.ts';

const count = z.coerce.number().int().positive();
const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '200' },
    streams: { type: 'string', default: '64' },
    events: { type: 'string', default: '16000' },
    rounds: { type: 'string', default: '5' },
    paced: { type: 'string', default: '256' },
  },
});
const { requests, streams, events, rounds, paced } = z
  .object({ requests: count, streams: count, events: count, rounds: count, paced: count })
  .parse(values);

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

const MODEL = 'bench/seal';
const root = await providerRoot('lab');
const pins = { lab: root.pin };
const gateway = await Gateway.start();
const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
const engine = new Managed([NODE, join(ROOT, 'bench/seal-engine.ts'), MODEL], { label: 'engine' });
const [, engineUrl = ''] = await engine.line(/engine at (\S+)/, 20_000);
const agent = await startAgent({
  gateways: [gateway.url],
  token,
  engineUrl,
  args: ['--delegate-file', root.delegateFile],
});
await gateway.serving(1);
const settings = { base: `${gateway.url}/v1`, key, model: MODEL, pins };
const client = new Managed([NODE, join(ROOT, 'bench/seal-client.ts'), JSON.stringify(settings)], {
  label: 'client',
  stdin: 'pipe',
});

/** Seconds: by the clock; of CPU in gateway and agent; of CPU in the client. */
interface Took {
  wall: number;
  cpu: number;
  client: number;
  /** Milliseconds, of paced streams. */
  p99: number;
}

const cpuSeconds = () => (ranFor(gateway.process.pid) + ranFor(agent.pid)) / 1e9;

const doneSchema = z.object({ seconds: z.number(), cpu: z.number(), p99: z.number() });
let lines = 0;
async function round(asked: Round): Promise<Took> {
  const before = cpuSeconds();
  client.child.stdin?.write(`${JSON.stringify(asked)}\n`);
  const all = await client.line(new RegExp(`^(?:[^\\n]*\\n){${lines}}([^\\n]+)\\n`), 300_000);
  lines++;
  const { seconds, cpu, p99 } = doneSchema.parse(JSON.parse(all[1] ?? ''));
  return { wall: seconds, cpu: cpuSeconds() - before, client: cpu, p99 };
}

/** Ten seconds. */
const PACED = { streams: paced, events: 500 };
const HOWS = ['clear', 'sealed', 'unopened'] as const;

async function byTurns(shape: Omit<Round, 'how'>, times: number): Promise<Record<Round['how'], Took>> {
  const took: Record<Round['how'], Took[]> = { clear: [], sealed: [], unopened: [] };
  for (const how of HOWS) await round({ how, ...shape, streams: 4 });
  for (let n = 0; n < times; n++) for (const how of HOWS) took[how].push(await round({ how, ...shape }));
  const middle = (of: readonly Took[]): Took => {
    const half = (value: (one: Took) => number) => quantile(of.map(value), 0.5);
    return {
      wall: half((one) => one.wall),
      cpu: half((one) => one.cpu),
      client: half((one) => one.client),
      p99: half((one) => one.p99),
    };
  };
  return { clear: middle(took.clear), sealed: middle(took.sealed), unopened: middle(took.unopened) };
}

const one = await byTurns({ streams: 1, events: 1, perWrite: 1, everyMs: 0 }, requests);
const ms = (seconds: number) => (seconds * 1000).toFixed(2);
console.log(
  `one request, median             clear ${ms(one.clear.wall)} ms, sealed ${ms(one.sealed.wall)} ms; CPU of gateway and agent ${ms(one.sealed.cpu - one.clear.cpu)} ms more (required: 0.5)`,
);
for (const { perWrite, required } of [
  { perWrite: 8, required: 0.85 },
  { perWrite: 1, required: 0.35 },
]) {
  const { clear, sealed, unopened } = await byTurns({ streams, events, perWrite, everyMs: 0 }, rounds);
  const perEvent = ({ cpu }: Took) => ((cpu * 1e6) / streams / events).toFixed(1);
  console.log(
    `${streams} streams, ${perWrite} events a write     of clear, by the clock: ${(clear.wall / sealed.wall).toFixed(2)} opened, ${(clear.wall / unopened.wall).toFixed(2)} drained (required: ${required}); by CPU of gateway and agent: ${(clear.cpu / unopened.cpu).toFixed(2)}: ${perEvent(unopened)} µs an event for ${perEvent(clear)}; client ${(sealed.client / clear.client).toFixed(1)} times the CPU`,
  );
}
const { clear, sealed } = await byTurns({ streams: PACED.streams, events: PACED.events, perWrite: 1, everyMs: 20 }, 3);
console.log(
  `${PACED.streams} streams, 50 events/s       p99 from the engine's write to the client: clear ${clear.p99.toFixed(1)} ms, sealed ${sealed.p99.toFixed(1)} ms (required: as clear); CPU seconds of gateway and agent ${clear.cpu.toFixed(1)} and ${sealed.cpu.toFixed(1)}, of the client ${clear.client.toFixed(1)} and ${sealed.client.toFixed(1)}, in 10 s`,
);
await endAll();
