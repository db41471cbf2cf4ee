/**
 * Added latency, open loop: requests start on schedule, whether or not earlier ones are done. Direct and gateway
 * alternate.
 */

import { seeded } from '../../test/support/random.ts';
import { type BenchCluster, request } from '../bench-cluster.ts';
import { Client, type Target } from '../client.ts';
import { judged, type Row } from '../report.ts';
import { arrivals, median, quantile, repeated } from '../stats.ts';

const LIMIT_MS = 0.7;

export interface Plan {
  seed: number;
  repeats: number;
  /** Requests per side, rate and repeat. */
  requests(perSecond: number): number;
}

/** Idle open connections; more are opened when all are busy. */
export class Pool {
  readonly #target: Target;
  readonly #free: Client[] = [];

  constructor(target: Target) {
    this.#target = target;
  }

  async with<T>(use: (client: Client) => Promise<T>): Promise<T> {
    const client = this.#free.pop() ?? new Client(this.#target);
    await client.open();
    try {
      return await use(client);
    } finally {
      this.#free.push(client);
    }
  }

  close(): void {
    for (const client of this.#free) client.close();
  }
}

export interface Side {
  pool: Pool;
  bytes: Buffer;
  times: number[];
  failed: number;
}

/** One repeat: all sides on schedules of the same rate, drawn from the same seed, interleaved. */
export async function interleaved(
  sides: Side[],
  perSecond: number,
  count: number,
  seed: number,
  first: boolean,
): Promise<void> {
  const start = performance.now() + 50;
  const plan = sides.flatMap((side, index) =>
    arrivals(seeded(seed + index), perSecond, count).map((at) => ({ at: start + at, side })),
  );
  plan.sort((a, b) => a.at - b.at);
  const running: Promise<void>[] = [];
  for (const { at, side } of plan) {
    const wait = at - performance.now();
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
    running.push(
      side.pool.with(async (client) => {
        const timing = await client.ask(side.bytes);
        if (timing.status === 200 && timing.complete) side.times.push(first ? timing.firstMs : timing.endMs);
        else side.failed++;
      }),
    );
  }
  await Promise.all(running);
}

async function at(cluster: BenchCluster, kind: 'unary' | 'TTFT', perSecond: number, plan: Plan): Promise<Row> {
  const make = (target: Target) =>
    kind === 'unary' ? request(target, 'unary') : request(target, 'stream 16 0', { stream: true });
  const pools = { direct: new Pool(cluster.direct), through: new Pool(cluster.through) };
  const added: number[] = [];
  const all = { direct: [] as number[], through: [] as number[] };
  let failed = 0;
  for (let n = 0; n < plan.repeats; n++) {
    const direct: Side = { pool: pools.direct, bytes: make(cluster.direct), times: [], failed: 0 };
    const through: Side = { pool: pools.through, bytes: make(cluster.through), times: [], failed: 0 };
    await interleaved([direct, through], perSecond, plan.requests(perSecond), plan.seed + n * 10, kind === 'TTFT');
    added.push(median(through.times) - median(direct.times));
    all.direct.push(...direct.times);
    all.through.push(...through.times);
    failed += direct.failed + through.failed;
  }
  pools.direct.close();
  pools.through.close();
  if (failed > 0) throw new Error(`${failed} requests failed at ${perSecond}/s`);
  const { median: value, least, most } = repeated(added);
  return judged(
    {
      what: `added to the median ${kind}`,
      at: `${perSecond} requests/s`,
      direct: median(all.direct),
      gateway: median(all.through),
      value,
      unit: 'ms',
      spread: [least, most],
      note: `p99 beside each other: direct ${quantile(all.direct, 0.99).toFixed(2)} ms, gateway ${quantile(all.through, 0.99).toFixed(2)} ms`,
    },
    { most: LIMIT_MS },
  );
}

export async function latency(cluster: BenchCluster, plan: Plan): Promise<Row[]> {
  const rows: Row[] = [];
  for (const kind of ['unary', 'TTFT'] as const) {
    for (const perSecond of [1, 4, 16]) rows.push(await at(cluster, kind, perSecond, plan));
  }
  return rows;
}
