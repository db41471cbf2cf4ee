/**
 * `npm run --prefix research paper:placement`: solves and simulates the paper's experiment (OpenTela §5, Table 1 and
 * Figure 7).
 */
import { writeFileSync } from 'node:fs';
import { dataPath, findGpu, findModel, loadCatalogue } from '../../scheduler/catalogue/catalogue.ts';
import { withDatasheetMemory } from '../../scheduler/catalogue/datasheet-memory.ts';
import { barsSvg } from '../../scheduler/cli/bar-chart.ts';
import { type ComparedPlan, comparisonText, panels } from '../../scheduler/cli/compare-command.ts';
import { planByMilp as planner } from '../../scheduler/planner/milp-planner.ts';
import { planFromCounts } from '../../scheduler/planner/plan-from-counts.ts';
import { predict } from '../../scheduler/planner/predict-plan.ts';
import { readInventory, readWorkload } from '../../scheduler/planner/read-input.ts';
import { PAPER_LIMITS } from '../../scheduler/simulator/engine-limits.ts';
import { OptionTable } from '../../scheduler/solver/option-table.ts';
import type { Counts, Demand, PlanOptions } from '../../scheduler/solver/planning-problem.ts';
import { measuredDrains } from '../../scheduler/validate/measured-data.ts';
import { researchData } from '../data-path.ts';

/** Seconds of arrivals. */
const DURATION_S = 300;

/** Replicas in the paper's Table 1 and its configuration files (2_1_placement): model, pool, TP, replicas. */
const PAPER_OURS = [
  ['Llama-2-13b-hf', 'a100', 1, 6],
  ['CodeLlama-34b-hf', 'a100', 2, 5],
  ['CodeLlama-34b-hf', 'gh200', 2, 8],
  ['Llama-3.3-70B-Instruct', 'a100', 4, 2],
  ['Llama-3.3-70B-Instruct', 'gh200', 4, 4],
] as const;
const PAPER_MEMP = [
  ['Llama-2-13b-hf', 'a100', 1, 4],
  ['CodeLlama-34b-hf', 'a100', 2, 8],
  ['Llama-3.3-70B-Instruct', 'a100', 4, 1],
  ['Llama-3.3-70B-Instruct', 'gh200', 4, 8],
] as const;
type Rows = readonly (readonly [string, string, number, number])[];
const PAPER_TP: Record<string, number> = { 'Llama-2-13b-hf': 1, 'CodeLlama-34b-hf': 2, 'Llama-3.3-70B-Instruct': 4 };

const catalogue = withDatasheetMemory(loadCatalogue({ calibration: dataPath('calibration-opentela.json') }));
const { pools } = readInventory(researchData('paper-inventory.json'), catalogue);
const workload = readWorkload(researchData('paper-workload.json'), catalogue);
const options: PlanOptions = {
  objective: 'throughput',
  reclaim: true,
  limits: PAPER_LIMITS,
  calibration: catalogue.calibration,
  measured: [],
  timeLimitS: 30,
  gap: 0.001,
  seed: 1,
};
const tail = (id: string) => id.split('/').at(-1) ?? id;

/** As in the paper: one parallelism per model. */
const paperDemands: Demand[] = workload.map((demand) => ({ ...demand, tp: [PAPER_TP[tail(demand.model.id)] ?? 1] }));

function countsOf(table: OptionTable, demands: readonly Demand[], rows: Rows): Counts {
  return table.options.map((option) => {
    const [model, pool] = [tail(demands[option.demand]?.model.id ?? ''), pools[option.pool]?.id];
    return rows.find((row) => row[0] === model && row[1] === pool && row[2] === option.tp)?.[3] ?? 0;
  });
}

function check(name: string, holds: boolean): boolean {
  console.log(`${holds ? 'holds ' : 'FAILS '} ${name}`);
  return holds;
}

/** Uses the measured drain times instead of the simulator: the table from which the paper's allocation was computed. */
async function withMeasuredTimes(): Promise<boolean> {
  const measured = measuredDrains().map((drain) => ({
    model: findModel(catalogue, drain.model).id,
    gpu: findGpu(catalogue, drain.gpu).id,
    tp: drain.tp,
    rate: (drain.rate * drain.durationS) / drain.seconds,
  }));
  const plan = await planner(pools, paperDemands, [], { catalogue, options: { ...options, measured } });
  console.log(
    `1. From the measured drain times, parallelism as the paper's (solved in ${plan.report?.seconds.toFixed(2)} s)\n`,
  );
  const found = plan.placements.map((one) => `${tail(one.model)} ${one.pool} ${one.tp} ${one.replicas}`).sort();
  for (const line of found) console.log(`   ${line.replace(/ (\d+) (\d+)$/, ' TP $1 × $2')}`);
  const same = check(
    "the allocation is the paper's Table 1",
    found.join() ===
      PAPER_OURS.map((row) => row.join(' '))
        .sort()
        .join(),
  );
  console.log('');
  return same;
}

async function withSimulator(): Promise<boolean> {
  const started = performance.now();
  const ours = await planner(pools, workload, [], { catalogue, options });
  const restricted = await planner(pools, paperDemands, [], { catalogue, options });
  const table = new OptionTable(paperDemands, pools, options);
  const ofRows = (name: string, rows: Rows) =>
    planFromCounts(name, table, countsOf(table, paperDemands, rows), paperDemands, pools);
  const plans = [
    ['ours', ours],
    ["ours, paper's TP", restricted],
    ["paper's", ofRows("paper's", PAPER_OURS)],
    ['memP', ofRows('memP', PAPER_MEMP)],
  ] as const;
  const solvedS = (performance.now() - started) / 1e3;
  const simulating = performance.now();
  const compared = plans.map(
    ([name, plan]): ComparedPlan => ({ name, plan, prediction: predict(plan, pools, workload, options, DURATION_S) }),
  );
  const wallS = (performance.now() - simulating) / 1e3;
  const simulatedS = compared.reduce((sum, { prediction }) => sum + prediction.drainS, 0);
  console.log(`2. From the simulator, parallelism free (all plans solved in ${solvedS.toFixed(1)} s)\n`);
  console.log(comparisonText(compared));
  console.log(
    `\nsimulated ${simulatedS.toFixed(0)} s of 56 GPUs in ${wallS.toFixed(2)} s: ${(simulatedS / wallS).toFixed(0)} times real time\n`,
  );
  const [mine, mineRestricted, theirs, memP] = compared;
  if (!mine || !mineRestricted || !theirs || !memP) return false;
  const svg = process.argv[2];
  if (svg !== undefined) writeFileSync(svg, barsSvg(panels(compared)));
  const worst = (one: ComparedPlan) => one.plan.servedShare;
  return [
    check('ours has more throughput than memP', mine.prediction.requestsPerS > memP.prediction.requestsPerS),
    check('ours has a lower mean latency than memP', mine.prediction.meanS < memP.prediction.meanS),
    check('ours has a lower P95 latency than memP', mine.prediction.p95S < memP.prediction.p95S),
    check(
      `the paper's plan does not beat ours on max-min throughput (${theirs.plan.servedShare.toFixed(4)} against ${worst(mine).toFixed(4)})`,
      worst(theirs) <= worst(mine),
    ),
    check(
      `nor ours with the paper's parallelism (${worst(mineRestricted).toFixed(4)})`,
      worst(theirs) <= worst(mineRestricted) + 1e-9,
    ),
    check('more than 100 times real time', simulatedS / wallS > 100),
  ].every(Boolean);
}

const holds = [await withMeasuredTimes(), await withSimulator()].every(Boolean);
process.exitCode = holds ? 0 : 1;
