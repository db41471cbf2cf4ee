import { median } from '../stats.ts';
import type { Options, Row } from './main.ts';
import { direct, linesOf, memoryDuring, openBatchCluster, through, upload } from './setup.ts';

const AGENTS = 4;
/** Requests in flight at each engine in the direct measurement: the window that agents may reach. */
const IN_FLIGHT = 64;

/** Engines that answer immediately: the cost of the gateway and the agents. */
export async function instant({ lines, rounds }: Options): Promise<Row[]> {
  const cluster = await openBatchCluster(AGENTS);
  const file = await upload(cluster.client, linesOf(lines, 'unary'));
  const rates: { direct: number[]; batch: number[] } = { direct: [], batch: [] };
  const { before, most } = await memoryDuring(cluster.gateway, async () => {
    for (let round = 0; round < rounds; round++) {
      rates.direct.push(await direct(cluster.urls, lines, { bench: 'unary', inFlight: IN_FLIGHT }));
      rates.batch.push(await through(cluster.client, file, lines));
    }
  });
  const [straight, batch] = [median(rates.direct), median(rates.batch)];
  return [
    { what: `${lines} lines straight at ${AGENTS} engines`, value: `${straight.toFixed(0)} lines/s` },
    {
      what: 'as a batch, input check and files included',
      value: `${batch.toFixed(0)} lines/s`,
      required: '≥ 1,000 lines/s',
      holds: batch >= 1_000,
    },
    {
      what: 'of direct',
      value: (batch / straight).toFixed(2),
      required: '≥ 0.35',
      holds: batch / straight >= 0.35,
    },
    {
      what: 'memory of the gateway',
      value: `${before.toFixed(0)} MiB before, ${most.toFixed(0)} at most`,
      required: '≤ +150 MiB',
      holds: most - before <= 150,
    },
  ];
}
