import type { HardwareCatalogue } from '../catalogue/catalogue.ts';
import { half, mean, median, type ReportSection } from './accuracy-checks.ts';
import { type PublishedRun, publishedRuns } from './measured-data.ts';
import { type ReplayedRun, replay } from './replay-published-run.ts';
import { percent, signed } from './text-table.ts';

/**
 * Largest allowed median error of the time per token, over the runs of a model on a GPU that were not used for fitting.
 */
const LIMIT = 0.12;
/** Minimum number of runs for a meaningful median. */
const RUNS_MIN = 8;

/**
 * Returns why a run is shown but not counted: its published description is incorrect, or this simulator does not model
 * it. NVIDIA's fp8 runs of the 8B model would need 1.6 PFLOP/s of an H200 for prompts only, 80 % of its peak. With 512
 * concurrent requests, the figures are those of several replicas. Qwen3-235B ran on expert kernels that were not tuned
 * for it.
 */
function notCounted(run: PublishedRun): string | undefined {
  if (run.by === 'NVIDIA' && run.weights === 'fp8')
    return run.model.includes('235B') ? 'kernels not tuned' : 'load not as reported';
  if (run.concurrency >= 512) return 'load not as reported';
  return undefined;
}

interface Group {
  model: string;
  gpu: string;
  weights: string;
  engines: Set<string>;
  months: Set<string>;
  reason: string | undefined;
  all: ReplayedRun[];
  held: ReplayedRun[];
}

/**
 * Compares the default calibration with published results of the same engine. Half of the runs, chosen by a hash of
 * their index, were used for fitting.
 */
export function publishedSection(catalogue: HardwareCatalogue): ReportSection {
  const groups = new Map<string, Group>();
  publishedRuns().forEach((run, index) => {
    const replayed = replay(run, catalogue);
    if (replayed === undefined) return;
    const { gpu, weights } = run;
    const model = run.model.split('/').at(-1) ?? run.model;
    const reason = notCounted(run);
    const key = [model, gpu, weights, reason].join();
    const empty = () => ({
      model,
      gpu,
      weights,
      reason,
      engines: new Set<string>(),
      months: new Set<string>(),
      all: [],
      held: [],
    });
    const group: Group = groups.get(key) ?? empty();
    groups.set(key, group);
    group.engines.add(run.engine.replace('vLLM not told', 'not told'));
    if (run.measured !== '') group.months.add(run.measured);
    group.all.push(replayed);
    if (half(index) === 1) group.held.push(replayed);
  });
  const rows = [...groups.values()].sort((a, b) => a.model.localeCompare(b.model) || a.gpu.localeCompare(b.gpu));
  return {
    title: `Published runs of vLLM 2025 and 2026 (calibration: ${catalogue.calibration.engine}): time per token, by concurrent requests`,
    header: [
      'model',
      'GPU',
      'weights',
      'engine',
      'runs',
      'TP',
      'under way',
      'mean error',
      'median',
      '90 of 100 within',
      'throughput',
      'counted',
    ],
    rows: rows.map(rowOf),
    checks: rows.filter(({ reason, held }) => reason === undefined && held.length >= RUNS_MIN).map(checkOf),
  };
}

const errorOf = ({ run, tpotMs }: ReplayedRun) => tpotMs / run.tpotMs - 1;

function span(values: readonly number[]): string {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return low === high ? String(low) : `${low}-${high}`;
}

function rowOf({ model, gpu, weights, engines, months, reason, all }: Group): (string | number)[] {
  const errors = all.map(errorOf);
  const sorted = errors.map(Math.abs).sort((a, b) => a - b);
  const of = [...engines]
    .map((engine) => (engine === 'not told' ? [...months].sort()[0] : engine.replace('vLLM ', '')))
    .join(', ');
  return [
    model,
    gpu,
    weights,
    of,
    all.length,
    span(all.map(({ run }) => run.tp)),
    span(all.map(({ run }) => run.concurrency)),
    signed(mean(errors), 0),
    percent(median(sorted), 0),
    percent(sorted[Math.floor(0.9 * (sorted.length - 1))] ?? Number.NaN, 0),
    signed(mean(all.map(({ throughput }) => throughput.ours / throughput.measured - 1)), 0),
    reason ?? 'yes',
  ];
}

function checkOf({ model, gpu, weights, held }: Group): ReportSection['checks'][number] {
  return {
    name: `published, ${model} ${weights} on ${gpu}`,
    limit: LIMIT,
    found: median(held.map((one) => Math.abs(errorOf(one)))),
    note: `median of ${held.length} runs not fitted`,
  };
}
