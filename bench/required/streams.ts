/** Streams through our gateway, and through the original if it is available. */

import { errorText } from '../../shared/text/error-text.ts';
import type { Target } from '../client.ts';
import { watchCores } from '../machine.ts';
import { crowd } from '../sections/crowd.ts';
import { paced, unpaced } from '../sections/tokens.ts';
import { median, quantile } from '../stats.ts';
import type { Required } from './row.ts';
import type { Sides } from './side-by-side.ts';

const OF_DIRECT_LEAST = 0.92;
const PACED = { streams: 256, most: 9 };
const CROWD = { streams: 1_000, rate: 10, most: 15 };

/** Returns the result of `measure`. If streams break, there is no figure, and the row's note says so. */
async function unlessBroken(note: Pick<Required, 'note'>, measure: () => Promise<number>): Promise<number | undefined> {
  try {
    return await measure();
  } catch (error) {
    note.note = `original: ${errorText(error)}`;
    return undefined;
  }
}

/** Runs `measure`, and adds the fraction of time in which the cores were busy. */
async function withCores<T>(busy: number[], measure: () => Promise<T>): Promise<T> {
  const cores = watchCores();
  const result = await measure();
  busy.push(cores());
  return result;
}

const waitsForCore = (busy: readonly number[]) =>
  `the cores are ${Math.round(100 * median(busy))} % busy, and a token waits for one in engine, agent, gateway and client`;

const medianOf = (values: readonly number[]) => (values.length === 0 ? undefined : median(values));

const ratioOf = (ours: number, original: number | undefined) =>
  original === undefined ? {} : { original, ratio: ours / original };

/** Tokens per second of 64 unpaced streams, as a fraction of the direct path in the same round. */
export async function unpacedStreams(
  { direct, ours, original }: Sides,
  plan: { rounds: number; tokens: number },
): Promise<Required> {
  const parts = { ours: [] as number[], original: [] as number[] };
  const note: Pick<Required, 'note'> = {};
  await unpaced(ours, plan.tokens); // Warm-up: before it, streams are slower.
  for (let n = 0; n < plan.rounds; n++) {
    const alone = await unpaced(direct, plan.tokens);
    parts.ours.push((await unpaced(ours, plan.tokens)) / alone);
    const rate = original && (await unlessBroken(note, () => unpaced(original, plan.tokens)));
    if (rate !== undefined) parts.original.push(rate / alone);
  }
  const of = median(parts.ours);
  return {
    figure: '64 unpaced streams',
    ours: of,
    ...ratioOf(of, medianOf(parts.original)),
    ...note,
    unit: 'of direct',
    of: 'ours',
    least: OF_DIRECT_LEAST,
  };
}

/** p99 of a token's path from the engine's write to the client's read, 256 streams at 50 tokens a second. */
export async function pacedStreams(
  { ours, original }: Sides,
  plan: { rounds: number; tokens: number; seed: number },
): Promise<Required> {
  const seen = { ours: [] as number[], original: [] as number[] };
  const busy: number[] = [];
  const note: Pick<Required, 'note'> = {};
  const p99 = async (target: Target, n: number) =>
    quantile((await paced(target, PACED.streams, plan.tokens, plan.seed + n)).delays, 0.99);
  for (let n = 0; n < plan.rounds; n++) {
    seen.ours.push(await withCores(busy, () => p99(ours, n)));
    const of = original && (await unlessBroken(note, () => p99(original, n)));
    if (of !== undefined) seen.original.push(of);
  }
  const way = median(seen.ours);
  return {
    figure: `p99 of a token’s way, ${PACED.streams} streams at 50/s (median of ${plan.rounds})`,
    ours: way,
    ...ratioOf(way, medianOf(seen.original)),
    ...note,
    unit: 'ms',
    of: 'ours',
    most: PACED.most,
    cause: waitsForCore(busy),
  };
}

export async function crowdOfStreams(ours: Target, plan: { rounds: number; seconds: number }): Promise<Required> {
  const { streams, rate, most } = CROWD;
  const ways: number[] = [];
  const busy: number[] = [];
  for (let seed = 0; seed < plan.rounds; seed++) {
    const { way } = await withCores(busy, () => crowd(ours, { streams, rate, seconds: plan.seconds, seed }));
    ways.push(quantile(way, 0.99));
  }
  return {
    figure: `p99 of a token’s way, ${streams.toLocaleString('en')} streams at ${rate}/s (median of ${plan.rounds})`,
    ours: median(ways),
    unit: 'ms',
    of: 'ours',
    most,
    cause: waitsForCore(busy),
  };
}
