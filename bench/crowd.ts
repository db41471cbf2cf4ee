/**
 * `npm run bench:crowd`: a thousand concurrent streams through one self-hosted gateway: its memory, and how much time
 * the path adds between two tokens. Direct and through the gateway alternate, with the same client and engine.
 * `--streams N --rates 2,5,10 --seconds N --repeats N`. Prints a table and writes bench/results/crowd.json; exit code 1
 * if the requirement is missed at the first rate.
 */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ROOT } from '../test/support/where.ts';
import { openBenchCluster, peak, resident, warm } from './bench-cluster.ts';
import { watchMachine } from './machine.ts';
import { judged, publish, type Row } from './report.ts';
import { run } from './run.ts';
import { crowd, type Seen } from './sections/crowd.ts';
import { quantile, repeated } from './stats.ts';

const ADDED_P99_MS = 20;
/** The client process measures itself: above this its event loop is late, and so is every time that it takes. */
const LATE_MS = 20;

const { values } = parseArgs({
  options: {
    streams: { type: 'string', default: '1000' },
    rates: { type: 'string', default: '2,5,10' },
    seconds: { type: 'string', default: '10' },
    repeats: { type: 'string', default: '1' },
    out: { type: 'string', default: join(ROOT, 'bench/results/crowd.json') },
  },
});
const streams = Number(values.streams);
const seconds = Number(values.seconds);

async function main(): Promise<number> {
  const measuredOn = watchMachine();
  const cluster = await openBenchCluster();
  await warm(cluster.through, 2_000);
  const before = resident(cluster);
  const rows: Row[] = [];
  const add = (row: Row) => void rows.push(row);
  for (const rate of values.rates.split(',').map(Number)) {
    const sides = { direct: [] as Seen[], through: [] as Seen[] };
    const memory = await peak(cluster, async () => {
      for (let n = 0; n < Number(values.repeats); n++) {
        sides.direct.push(await crowd(cluster.direct, { streams, seconds, rate, seed: n }));
        sides.through.push(await crowd(cluster.through, { streams, seconds, rate, seed: n }));
      }
    });
    const at = `${streams} streams at ${rate} tokens/s`;
    const p = (side: Seen[], pick: (one: Seen) => number[], q: number) =>
      repeated(side.map((one) => quantile(pick(one), q)));
    const row = (what: string, pick: (one: Seen) => number[], q: number): Row => {
      const through = p(sides.through, pick, q);
      const direct = p(sides.direct, pick, q).median;
      return {
        what,
        at,
        direct,
        gateway: through.median,
        value: through.median,
        unit: 'ms',
        spread: [through.least, through.most],
      };
    };
    add(
      judged(
        row('p99 of what is added to the time between two tokens', ({ added }) => added, 0.99),
        { most: ADDED_P99_MS },
      ),
    );
    add(row('median of a token’s way from the engine to the client', ({ way }) => way, 0.5));
    add(row('p99 of a token’s way', ({ way }) => way, 0.99));
    add({
      what: `the client’s own event loop was late at most (above ${LATE_MS} ms it is part of what was measured)`,
      at,
      value: Math.max(...sides.through.map(({ late }) => late)),
      unit: 'ms',
    });
    for (const name of ['gateway', 'agent'] as const)
      add({
        what: `resident memory, ${name}, peak`,
        at,
        direct: before[name],
        gateway: memory[name],
        value: (1024 * (memory[name] - before[name])) / streams,
        unit: 'KiB per stream',
        note: 'direct: before',
      });
  }
  return publish(measuredOn(), rows, values.out);
}

await run(main);
