import type { Options, Row } from './main.ts';
import { begin, isOver, linesOf, openBatchCluster, upload, watch } from './setup.ts';

const AGENTS = 4;
const SLOTS = 16;
const BENCH = `paced ${SLOTS} 50`;

/**
 * Kills one of four agents in the middle of a batch. Measures how much longer the batch takes, and how many lines run
 * twice.
 */
export async function lost({ lines }: Options): Promise<Row[]> {
  const cluster = await openBatchCluster(AGENTS, ['--max-running', String(SLOTS)]);
  const file = await upload(cluster.client, linesOf(lines, BENCH));
  const asked = async () => {
    const counts = await Promise.all(
      cluster.urls.map(async (url) => Number(await (await fetch(`${url}/asked`)).text())),
    );
    return counts.reduce((sum, count) => sum + count, 0);
  };
  const run = async (half: () => void) => {
    const startedAt = performance.now();
    const before = await asked();
    const id = await begin(cluster.client, file);
    await watch(cluster.client, id, (batch) => (batch.request_counts?.completed ?? 0) >= lines / 2);
    half();
    const batch = await watch(cluster.client, id, isOver);
    if (batch.request_counts?.completed !== lines) throw new Error(`not all lines: ${JSON.stringify(batch)}`);
    return { tookMs: performance.now() - startedAt, twice: (await asked()) - before - lines };
  };
  const calm = await run(() => {});
  const killed = await run(() => cluster.agents[0]?.signal('SIGKILL'));
  // Lines at the engine, and results of the last second that were not committed: 16 slots and 20 rounds of them.
  const inFlight = SLOTS + SLOTS * 20;
  const factor = killed.tookMs / calm.tookMs;
  return [
    {
      what: `${lines} lines, 1 of ${AGENTS} agents killed at half: time, of undisturbed`,
      value: factor.toFixed(2),
      required: '≤ 1.4',
      holds: factor <= 1.4,
    },
    {
      what: 'lines that ran twice (undisturbed: the tail that is run a second time)',
      value: `${killed.twice} (${calm.twice})`,
      required: `≤ ${inFlight} more`,
      holds: killed.twice - calm.twice <= inFlight,
    },
  ];
}
