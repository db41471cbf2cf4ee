/**
 * `npm run bench:client-disconnect`: how long an engine continues after its client disconnected, from the client's FIN
 * until the engine's connection ends, in each phase of an engine's work. A self-hosted gateway, one agent and one mock
 * engine on this machine.
 */
import type { EngineRequest } from '../test/support/engine.ts';
import { endAll } from '../test/support/processes.ts';
import { dial, postBytes } from '../test/support/raw.ts';
import { chatBody, openTestCluster, type TestCluster } from '../test/support/test-cluster.ts';
import { median } from './stats.ts';

const ROUNDS = 30;
/**
 * A non-streaming response that takes longer than this is no longer the answer to a call: it must be fetched. See
 * gateway/tunnel/call/pending-calls.ts.
 */
const LATER_MS = 500;

const SLOW = { tokens: 10_000, tokensPerSecond: 20 };
const PHASES: Record<string, { body: object; reached(request: EngineRequest): boolean }> = {
  'before the first byte of a stream': {
    body: chatBody({ delayMs: 60_000 }, { stream: true }),
    reached: ({ bodySha256 }) => bodySha256 !== '',
  },
  'in the middle of a stream': { body: chatBody(SLOW, { stream: true }), reached: ({ tokensSent }) => tokensSent >= 5 },
  'a unary answer, at once': { body: chatBody(SLOW), reached: ({ bodySha256 }) => bodySha256 !== '' },
  'a unary answer, later': { body: chatBody(SLOW), reached: ({ arrivedAt }) => Date.now() - arrivedAt > LATER_MS },
};

async function leave(cluster: TestCluster, { body, reached }: (typeof PHASES)[string]): Promise<number> {
  const before = cluster.engine.requests.at(-1)?.id ?? 0;
  const url = `${cluster.gateway.url}/v1/chat/completions`;
  const socket = await dial(cluster.gateway.url);
  socket.on('error', () => undefined).resume();
  socket.write(postBytes(url, { authorization: `Bearer ${cluster.key}` }, body));
  const mine = await cluster.engine.when(({ id }) => id > before, 5_000, 'the request');
  while (!reached(mine)) await new Promise((resolve) => setTimeout(resolve, 3));
  const leftAt = Date.now();
  socket.end();
  const aborted = await cluster.engine.when(
    ({ id, abortedAt }) => id === mine.id && abortedAt !== undefined,
    5_000,
    'it',
  );
  socket.destroy();
  return (aborted.abortedAt ?? Number.POSITIVE_INFINITY) - leftAt;
}

const cluster = await openTestCluster();
console.log('| client leaves | median | most |\n| --- | --- | --- |');
for (const [name, phase] of Object.entries(PHASES)) {
  const took: number[] = [];
  for (let round = 0; round < ROUNDS; round++) took.push(await leave(cluster, phase));
  console.log(`| ${name} | ${median(took)} ms | ${Math.max(...took)} ms |`);
}
await endAll();
process.exit(0);
