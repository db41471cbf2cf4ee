import { describe, expect, it } from 'vitest';
import { researchData } from '../../research/data-path.ts';
import { dataPath, findGpu, findModel, readCalibration } from '../../scheduler/catalogue/catalogue.ts';
import { withDatasheetMemory } from '../../scheduler/catalogue/datasheet-memory.ts';
import { parameters } from '../../scheduler/catalogue/model.ts';
import { planByMilp } from '../../scheduler/planner/milp-planner.ts';
import { planFromCounts } from '../../scheduler/planner/plan-from-counts.ts';
import { readInventory, readWorkload } from '../../scheduler/planner/read-input.ts';
import { PAPER_LIMITS } from '../../scheduler/simulator/engine-limits.ts';
import { memoryProportional } from '../../scheduler/solver/baselines.ts';
import { OptionTable } from '../../scheduler/solver/option-table.ts';
import type { Demand } from '../../scheduler/solver/planning-problem.ts';
import { measuredDrains } from '../../scheduler/validate/measured-data.ts';
import { plan as otelaPlan } from '../scheduler/support/plan-files.ts';
import { catalogue as actual, planOptions } from '../scheduler/support/small.ts';

const catalogue = withDatasheetMemory(actual);

describe("the paper's experiment", () => {
  const { pools } = readInventory(researchData('paper-inventory.json'), catalogue);
  const tps: Record<string, number> = { '13b': 1, '34b': 2, '70B': 4 };
  const demands: Demand[] = readWorkload(researchData('paper-workload.json'), catalogue).map((one) => ({
    ...one,
    tp: [tps[/\d+[bB]/.exec(one.model.id.split('-').slice(1).join('-'))?.[0] ?? ''] ?? 1],
  }));
  // The engine that the paper measured, not today's.
  const calibration = readCalibration(dataPath('calibration-opentela.json'));
  const options = planOptions({ objective: 'throughput', limits: PAPER_LIMITS, calibration });
  const table1 = [
    'CodeLlama-34b-hf a100 2x5',
    'CodeLlama-34b-hf gh200 2x8',
    'Llama-2-13b-hf a100 1x6',
    'Llama-3.3-70B-Instruct a100 4x2',
    'Llama-3.3-70B-Instruct gh200 4x4',
  ];
  const rows = (found: Awaited<ReturnType<typeof planByMilp>>) =>
    found.placements.map((one) => `${one.model.split('/')[1]} ${one.pool} ${one.tp}x${one.replicas}`).sort();

  it('from the measured drain times gives Table 1', async () => {
    const measured = measuredDrains().map((drain) => ({
      model: findModel(catalogue, drain.model).id,
      gpu: findGpu(catalogue, drain.gpu).id,
      tp: drain.tp,
      rate: (drain.rate * drain.durationS) / drain.seconds,
    }));
    expect(rows(await planByMilp(pools, demands, [], { catalogue, options: { ...options, measured } }))).toEqual(
      table1,
    );
  });

  it('from the simulator alone gives a plan that is no worse than Table 1, which is close to it', async () => {
    const found = await planByMilp(pools, demands, [], { catalogue, options });
    const table = new OptionTable(demands, pools, options);
    const counts = table.options.map((option) => {
      const row = `${demands[option.demand]?.model.id.split('/')[1]} ${pools[option.pool]?.id} ${option.tp}x`;
      return Number(table1.find((line) => line.startsWith(row))?.slice(row.length) ?? 0);
    });
    const theirs = planFromCounts('Table 1', table, counts, demands, pools);
    expect(theirs.servedShare).toBeGreaterThan(0.2);
    expect(found.servedShare).toBeGreaterThanOrEqual(theirs.servedShare);
    expect(found.servedShare).toBeLessThan(theirs.servedShare * 1.02);
  });

  it('memP gives 4, 16 and 36 GPUs, 2.66 away from its targets', async () => {
    const table = new OptionTable(demands, pools, options);
    const counts = await memoryProportional(table.options, demands, pools);
    const gpus = demands.map((_, m) =>
      table.options.reduce((sum, option, o) => sum + (option.demand === m ? option.tp * (counts[o] ?? 0) : 0), 0),
    );
    expect(gpus).toEqual([4, 16, 36]);
    const shares = demands.map((one) => one.rate * parameters(one.model));
    const total = shares.reduce((sum, share) => sum + share, 0);
    const off = gpus.reduce((sum, n, m) => sum + Math.abs(n - (56 * (shares[m] ?? 0)) / total), 0);
    expect(off).toBeCloseTo(2.66, 0);
  });

  it('is planned by the command from its two files', async () => {
    const [inventory, workload] = [researchData('paper-inventory.json'), researchData('paper-workload.json')];
    expect((await otelaPlan(inventory, workload, '--objective', 'throughput', '--duration', '0')).code).toBe(0);
  });
});
