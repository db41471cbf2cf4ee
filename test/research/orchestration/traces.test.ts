import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { dayRuns } from '../../../research/papers/oserve/day-runs.ts';
import { setupOf } from '../../../research/papers/oserve/setups.ts';
import { azureByMinute, azureSpan, fileByMinute, secondsOfTrace } from '../../../research/papers/oserve/traces.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';

afterEach(endAll);

const HOUR = { fromS: 0, toS: 1200, inputMax: 16_000, outputMax: 4_000 };

/** Requests by second. */
function perSecond({ requests }: { requests: { arrival: Float64Array } }): number[] {
  const counts = new Array<number>(HOUR.toS).fill(0);
  for (const at of requests.arrival) counts[Math.floor(at)] = (counts[Math.floor(at)] ?? 0) + 1;
  return counts;
}

const minutes = (counts: readonly number[]): number[] =>
  Array.from({ length: counts.length / 60 }, (_, m) =>
    counts.slice(m * 60, m * 60 + 60).reduce((sum, one) => sum + one, 0),
  );

/** Variance over mean of the counts of a minute's seconds, mean over the minutes: 1 for Poisson arrivals. */
function dispersion(counts: readonly number[]): number {
  const all = minutes(counts).map((total, m) => {
    const mean = total / 60;
    const own = counts.slice(m * 60, m * 60 + 60);
    return own.reduce((sum, one) => sum + (one - mean) ** 2, 0) / 59 / mean;
  });
  return all.reduce((sum, one) => sum + one, 0) / all.length;
}

test('a scaled trace has the rate of each minute, without the bursts of a small service', () => {
  const recorded = perSecond(azureSpan(HOUR));
  const scaled = perSecond(azureByMinute({ ...HOUR, scale: 10, seed: 1 }));
  for (const [m, count] of minutes(recorded).entries()) {
    const expected = 10 * count;
    // Five standard deviations of a Poisson count.
    expect(Math.abs((minutes(scaled)[m] ?? 0) - expected), `minute ${m}`).toBeLessThan(5 * Math.sqrt(expected));
  }
  expect(dispersion(recorded)).toBeGreaterThan(1.5);
  expect(dispersion(scaled)).toBeGreaterThan(0.85);
  expect(dispersion(scaled)).toBeLessThan(1.15);
});

test('a scaled trace has lengths of the requests that were recorded in the same minute', () => {
  const of = ({ requests }: ReturnType<typeof azureSpan>, minute: number) =>
    Array.from(
      requests.arrival,
      (at, i) => [Math.floor(at / 60), `${requests.input[i]}:${requests.output[i]}`] as const,
    )
      .filter(([own]) => own === minute)
      .map(([, lengths]) => lengths);
  const [recorded, scaled] = [azureSpan(HOUR), azureByMinute({ ...HOUR, scale: 3, seed: 2 })];
  for (const minute of [0, 7, 19]) {
    const known = new Set(of(recorded, minute));
    expect(of(scaled, minute).filter((lengths) => !known.has(lengths))).toEqual([]);
  }
});

test('a file in any format of traces is drawn in the same way', async () => {
  const folder = await temporaryDirectory('otela-traces');
  const path = join(folder, 'mooncake.jsonl');
  // Ten requests in the first minute, 30 in the second.
  const rows = [...Array(10).keys(), ...Array.from({ length: 30 }, (_, i) => 60 + i)].map((second) =>
    JSON.stringify({ timestamp: second * 1_000, input_length: 100 + second, output_length: 7, hash_ids: [] }),
  );
  await writeFile(path, `${rows.join('\n')}\n`);
  expect(secondsOfTrace(path)).toBe(89);
  const { requests } = fileByMinute(path, { ...HOUR, toS: 120, scale: 100, seed: 1 });
  const first = requests.arrival.filter((at) => at < 60).length;
  expect(Math.abs(first - 1_000)).toBeLessThan(5 * Math.sqrt(1_000));
  expect(Math.abs(requests.count - first - 3_000)).toBeLessThan(5 * Math.sqrt(3_000));
  expect(requests.input.every((input, i) => input < 110 === (requests.arrival[i] ?? 0) < 60)).toBe(true);
  expect(dayRuns(true, path)).toMatchObject([{ minutes: 90, file: { path, bytes: expect.any(Number) } }]);
});

test('responses are whole, and a prompt has the rest of the context', () => {
  const { requests } = setupOf({ model: 'facebook/opt-30b', gpus: 8, trace: 'azure', span: 2 });
  const longest = requests.output.reduce((a, b) => Math.max(a, b), 0);
  expect(longest).toBeGreaterThan(512);
  const tokens = requests.input.map((input, i) => input + (requests.output[i] ?? 0));
  expect(tokens.reduce((a, b) => Math.max(a, b), 0)).toBe(2047);
});
