/**
 * `node bench/burden.ts [ROUNDS]`: processor time of the runtime, the agent and the process that owns the public
 * socket, per token of streams and per MiB of large bodies. Wall time says little on a busy machine; this shows which
 * program works less.
 */
import { endAll } from '../test/support/processes.ts';
import { openBenchCluster, request, warm } from './bench-cluster.ts';
import { Client, type Target } from './client.ts';
import { ranFor } from './ran-for.ts';
import { download, upload } from './sections/wide.ts';
import { repeated } from './stats.ts';

const MIB = 1024 * 1024;
const BODY_BYTES = 200 * MIB;
const NS_PER_US = 1_000;
const rounds = Number(process.argv[2] ?? 3);

/**
 * Runs streams whose starts are spread over a second. Each has `perSecond` tokens per second; 0: as fast as possible.
 * Returns the total number of tokens.
 */
async function streams(target: Target, count: number, tokens: number, perSecond: number): Promise<number> {
  const bytes = request(target, `stream ${tokens} ${perSecond}`, { stream: true });
  await Promise.all(
    Array.from({ length: count }, async (_, n) => {
      const client = new Client(target);
      await client.open();
      if (perSecond > 0) await new Promise((resolve) => setTimeout(resolve, (n * 1_000) / count));
      const { status, complete } = await client.ask(bytes);
      client.close();
      if (status !== 200 || !complete) throw new Error(`a stream broke: ${status}`);
    }),
  );
  return count * tokens;
}

const WAYS: [what: string, unit: string, run: (target: Target) => Promise<number>][] = [
  ['40 streams at 50 tokens/s', 'token', (target) => streams(target, 40, 400, 50)],
  ['256 streams at 50 tokens/s', 'token', (target) => streams(target, 256, 200, 50)],
  ['64 unpaced streams', 'token', (target) => streams(target, 64, 1_500, 0)],
  ['200 MiB from the engine', 'MiB', (target) => download(target, BODY_BYTES).then(() => BODY_BYTES / MIB)],
  ['200 MiB to the engine', 'MiB', (target) => upload(target, BODY_BYTES).then(() => BODY_BYTES / MIB)],
];

const cluster = await openBenchCluster();
await warm(cluster.through, 2_000);
const pids = { gateway: cluster.gateway.process.pid, agent: cluster.agent.pid };
for (const [what, unit, run] of WAYS) {
  const seen = Object.keys(pids).map((): number[] => []);
  for (let n = 0; n < rounds; n++) {
    const before = Object.values(pids).map(ranFor);
    const units = await run(cluster.through);
    for (const [at, pid] of Object.values(pids).entries())
      seen[at]?.push((ranFor(pid) - (before[at] ?? 0)) / NS_PER_US / units);
  }
  const told = Object.keys(pids).map((name, at) => {
    const { median, least, most } = repeated(seen[at] ?? []);
    return `${name} ${median.toFixed(1)} (${least.toFixed(1)} … ${most.toFixed(1)})`;
  });
  console.log(`${what}: µs per ${unit}: ${told.join(', ')}`);
}
await endAll();
