/**
 * `npm run --prefix research bench:optimality`: compares plans of small problems with all possible plans. `SEEDS`:
 * problems per objective.
 */
import { loadCatalogue } from '../../scheduler/catalogue/catalogue.ts';
import { SchedulerError } from '../../scheduler/errors.ts';
import { DEFAULT_LIMITS } from '../../scheduler/simulator/engine-limits.ts';
import { OBJECTIVES, type PlanOptions } from '../../scheduler/solver/planning-problem.ts';
import { percent, table } from '../../scheduler/validate/text-table.ts';
import { tinyInstance } from './instances.ts';
import { type Verdict, verdictOn } from './verdict.ts';

const SEEDS = Number(process.argv[2] ?? 200);
const catalogue = loadCatalogue();
let faults = 0;
const rows = [];
for (const objective of OBJECTIVES) {
  const settings: PlanOptions = {
    objective,
    reclaim: true,
    limits: DEFAULT_LIMITS,
    calibration: catalogue.calibration,
    measured: [],
    timeLimitS: 10,
    gap: 0.01,
    seed: 1,
  };
  const verdicts: Verdict[] = [];
  for (let seed = 0; seed < SEEDS; seed++) {
    try {
      verdicts.push(await verdictOn(tinyInstance(catalogue, seed), settings));
    } catch (error) {
      if (!(error instanceof SchedulerError) || error.code !== 'infeasible') throw error;
    }
  }
  for (const verdict of verdicts) for (const fault of verdict.faults) console.log(`${objective}: ${fault}`);
  faults += verdicts.filter((one) => one.faults.length > 0).length;
  const kinds = (kind: Verdict['kind']) => verdicts.filter((one) => one.kind === kind).length;
  rows.push([
    objective,
    verdicts.length,
    `${kinds('served')}, ${kinds('targets')}, ${kinds('demand')}`,
    verdicts.filter(({ worse }) => worse < 1e-6).length,
    percent(Math.max(...verdicts.map(({ worse }) => worse)), 2),
    percent(Math.max(...verdicts.map(({ gap }) => gap)), 2),
    verdicts.filter(({ proven }) => proven).length,
    verdicts.reduce((sum, { plans }) => sum + plans, 0),
  ]);
}
console.log(
  table(
    [
      'objective',
      'problems',
      'as asked, late, short',
      'best plan found',
      'worst distance',
      'largest distance said',
      'said to be proven',
      'plans tried',
    ],
    rows,
  ),
);
console.log(
  `\n${faults === 0 ? 'met' : 'MISSED'}: no plan is further from the best than it says, and none leaves a model out that could have a replica`,
);
process.exitCode = faults === 0 ? 0 : 1;
