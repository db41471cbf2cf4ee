import { expect, test } from 'vitest';
import { RateTable } from '../../../scheduler/assignment/rate-table.ts';
import { findGpu, findModel, loadCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import { withDatasheetMemory } from '../../../scheduler/catalogue/datasheet-memory.ts';
import { DEFAULT_LIMITS } from '../../../scheduler/simulator/engine-limits.ts';
import { seededRandom } from '../../../scheduler/simulator/random.ts';
import { SimulatedEngine } from '../../../scheduler/simulator/simulated-engine.ts';
import { fitKinds } from '../../../scheduler/workload/request-kinds.ts';

const LENGTHS = [
  { input: 1400, output: 12 },
  { input: 200, output: 300 },
] as const;
const catalogue = withDatasheetMemory(loadCatalogue());
const site = {
  model: findModel(catalogue, 'facebook/opt-30b'),
  gpu: findGpu(catalogue, 'h100'),
  gpus: 4,
  gpusPerNode: 8,
};
const kinds = fitKinds(
  LENGTHS.flatMap((one) => new Array(50).fill(one)),
  { most: 2, seed: 1 },
);
const REQUESTS = 2_000;
/** Requests by which a batch fills and empties do not count. */
const EDGE = 400;

test('the time of each kind adds up to the time of a replica that serves both, with stages and without', () => {
  const table = new RateTable(site, kinds, catalogue.calibration, DEFAULT_LIMITS);
  const shapes = table.shapes.map(({ shape }) => `${shape.tp}.${shape.pp}`);
  expect(shapes).toEqual(expect.arrayContaining(['2.1', '4.1', '1.2', '2.2']));
  for (const { shape, rates } of table.shapes) {
    const ends: number[] = [];
    const ended = (_request: number, _first: number | undefined, end: number) => ends.push(end);
    const engine = new SimulatedEngine(table.step(shape), DEFAULT_LIMITS, ended);
    const random = seededRandom(8);
    for (let i = 0; i < REQUESTS; i++) {
      const { input, output } = LENGTHS[random() < 0.5 ? 0 : 1];
      engine.push(i, 0, input, output);
    }
    engine.run(Number.POSITIVE_INFINITY);
    ends.sort((a, b) => a - b);
    const simulated = (REQUESTS - 2 * EDGE) / ((ends[REQUESTS - EDGE] ?? 0) - (ends[EDGE] ?? 0));
    const added = 2 / rates.reduce((sum, rate) => sum + 1 / rate, 0);
    expect(added / simulated, `TP ${shape.tp} × PP ${shape.pp}`).toBeGreaterThan(0.9);
    expect(added / simulated, `TP ${shape.tp} × PP ${shape.pp}`).toBeLessThan(shape.pp === 1 ? 1.1 : 1.25);
  }
});
