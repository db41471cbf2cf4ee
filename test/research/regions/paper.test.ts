import { describe, expect, it } from 'vitest';
import { compare, SETTINGS } from '../../../research/papers/torta/comparison.ts';
import { Simulations } from '../../../research/papers/torta/experiment.ts';
import { comparisonRows, setUpRows } from '../../../research/papers/torta/figures.ts';
import { failure } from '../../../research/papers/torta/scenarios.ts';
import { change, interval } from '../../../research/papers/torta/statistics.ts';
import { staticCapacity } from '../../../research/regions/simulator/workload.ts';
import { loadTopology } from '../../../research/regions/world/topology.ts';
import { buildWorld } from '../../../research/regions/world/world.ts';
import { catalogue } from './support.ts';

describe('the topologies', () => {
  it.each([
    ['abilene', 12, 25],
    ['polska', 12, 45],
    ['gabriel25', 25, 80],
    ['cost266', 37, 150],
    ['nobel-eu', 28, 7],
    ['geant', 22, 10.5],
  ])('%s has %i regions, all within reach, %i ms apart on average', (id, regions, ms) => {
    const { latencyS } = loadTopology(id);
    expect(latencyS).toHaveLength(regions);
    const apart = latencyS.flatMap((line, i) => line.filter((_, j) => i !== j));
    expect((1e3 * apart.reduce((sum, s) => sum + s, 0)) / apart.length).toBeCloseTo(ms, 6);
    for (const [i, line] of latencyS.entries())
      for (const [j, seconds] of line.entries()) {
        expect(seconds).toBeCloseTo(latencyS[j]?.[i] ?? 0, 12);
        for (const via of latencyS[i]?.keys() ?? [])
          if (via !== i && via !== j && i !== j)
            expect(seconds).toBeLessThanOrEqual((line[via] ?? 0) + (latencyS[via]?.[j] ?? 0) + 1e-12);
      }
  });
  it('that is unknown is refused with the names that there are', () => {
    expect(() => loadTopology('atlantis')).toThrow(/abilene, polska, gabriel25, cost266, nobel-eu, geant/);
  });
});

describe("the paper's experiment", () => {
  it.each(['abilene', 'polska'])('keeps its bands on %s, two seeds of three quarters of an hour', async (topology) => {
    const { awake, sleep } = SETTINGS;
    const names = [awake, sleep].flatMap(({ ours, baselines }) => [ours, ...baselines]);
    const compared = await compare(new Simulations(catalogue), topology, [1, 2], 60, names);
    for (const row of comparisonRows(compared))
      expect(row, `${row.claim}: ${row.ours} ${row.unit}, allowed ${row.band?.join(' to ')}`).toMatchObject({
        holds: true,
      });
  });

  it('loses no task with a region', async () => {
    for (const row of (await failure(new Simulations(catalogue), [3])).rows)
      expect(row, `${row.claim}: ${row.ours} ${row.unit}`).toMatchObject({ holds: true });
  });
});

describe('the set-up', () => {
  it("is the paper's: topologies, latencies, seconds of switching", () => {
    for (const row of setUpRows(catalogue))
      expect(row, `${row.claim}: ${row.ours} ${row.unit}`).toMatchObject({ holds: true });
  });
  it('has the GPUs of the paper as totals of twelve regions', () => {
    const { servers, kinds } = buildWorld('abilene', 4, catalogue);
    for (const [kind, { servers: range }] of kinds.entries()) {
      const count = servers.filter((one) => one.kind === kind).length;
      expect(count).toBeGreaterThanOrEqual(range[0]);
      expect(count).toBeLessThanOrEqual(range[1]);
    }
  });
  it('could serve some fifteen tasks per second', () => {
    expect(staticCapacity(buildWorld('abilene', 1, catalogue))).toBeGreaterThan(8);
  });
});

describe('intervals', () => {
  it('are those of Student', () => {
    expect(interval([1, 2, 3])).toEqual({ mean: 2, half: expect.closeTo(4.3 / Math.sqrt(3), 6) });
    expect(change([8, 9], [10, 10]).mean).toBeCloseTo(-0.15, 12);
  });
});
