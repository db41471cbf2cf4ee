/**
 * `npm run --prefix research bench:placement`: measures how long planning takes, and the bound on its distance from the
 * optimum.
 */
import { cpus } from 'node:os';
import { loadCatalogue } from '../../scheduler/catalogue/catalogue.ts';
import { DEFAULT_LIMITS } from '../../scheduler/simulator/engine-limits.ts';
import { OBJECTIVES } from '../../scheduler/solver/planning-problem.ts';
import { solvePlan } from '../../scheduler/solver/solve-plan.ts';
import { percent, table } from '../../scheduler/validate/text-table.ts';
import { drawInstance } from '../../test/scheduler/support/instances.ts';

/** Requirements for each size: distance from the optimum, within seconds. */
const SIZES = [
  { models: 5, kinds: 4, seeds: [1, 2, 3], load: 0.15, limitS: 20, gap: 0.05, withinS: 1 },
  { models: 10, kinds: 6, seeds: [1, 2, 3], load: 0.15, limitS: 5, gap: 0.05, withinS: 5 },
  { models: 100, kinds: 12, seeds: [1], load: 0.1, limitS: 30, gap: 0.05, withinS: 30 },
];

const catalogue = loadCatalogue();
const rows: (string | number)[][] = [];
for (const { models, kinds, seeds, load, limitS, gap, withinS } of SIZES) {
  for (const objective of OBJECTIVES) {
    for (const seed of seeds) {
      const { pools, demands } = drawInstance(catalogue, models, kinds, seed, load);
      const settings = {
        objective,
        reclaim: true,
        limits: DEFAULT_LIMITS,
        calibration: catalogue.calibration,
        measured: [],
        timeLimitS: limitS,
        gap: 0.01,
        seed: 1,
      };
      const cpu = process.cpuUsage();
      const started = performance.now();
      const { report, shortfall } = await solvePlan(pools, demands, [], settings);
      const seconds = (performance.now() - started) / 1e3;
      const { user, system } = process.cpuUsage(cpu);
      rows.push([
        `${models} × ${kinds}`,
        shortfall === undefined ? objective : `${objective} (short: ${shortfall})`,
        seed,
        report.integers,
        report.simulated,
        report.method,
        `${percent(report.gap, 1)}${report.proven ? '' : ', not proven'}`,
        seconds.toFixed(1),
        ((user + system) / 1e6).toFixed(1),
        report.gap <= gap && seconds <= withinS ? 'met' : 'MISSED',
      ]);
    }
  }
}
console.log(
  table(
    [
      'models × GPUs',
      'objective',
      'seed',
      'ways to run a replica',
      'simulated',
      'method',
      'from the best at most',
      'seconds',
      'CPU seconds',
      'within 5 % in 1, 5, 30 s',
    ],
    rows,
  ),
);
console.log(`\non ${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}`);
process.exitCode = rows.every((row) => row.at(-1) === 'met') ? 0 : 1;
