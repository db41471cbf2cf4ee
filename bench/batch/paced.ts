import { median } from '../stats.ts';
import type { Options, Row } from './main.ts';
import { direct, linesOf, openBatchCluster, through, upload } from './setup.ts';

const AGENTS = 4;
const SLOTS = 16;
const BENCH = `paced ${SLOTS} 50`;

/** Engines with 16 slots and 50 ms per line: are their slots kept full? */
export async function paced({ lines, rounds }: Options): Promise<Row[]> {
  const cluster = await openBatchCluster(AGENTS, ['--max-running', String(SLOTS)]);
  const file = await upload(cluster.client, linesOf(lines, BENCH));
  const shares: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const straight = await direct(cluster.urls, lines, { bench: BENCH, inFlight: SLOTS });
    shares.push((await through(cluster.client, file, lines)) / straight);
  }
  const share = median(shares);
  const what = `${lines} lines at ${AGENTS} engines of ${SLOTS} slots and 50 ms, of direct`;
  return [{ what, value: share.toFixed(2), required: '≥ 0.9', holds: share >= 0.9 }];
}
