import type { TimelineResult } from '../../orchestration/timeline.ts';
import { table } from '../../validate/table.ts';
import { row } from '../rows.ts';
import { POLICIES, type PolicyName, runPolicy } from './policies.ts';
import type { RunOptions, Section } from './section.ts';
import { type SetupOf, setupOf, type TraceName } from './setups.ts';

interface Cell {
  of: SetupOf;
  name: string;
  results: Record<PolicyName, TimelineResult>;
}

/** The paper's models and GPUs (§6.1; 32 GPUs in Figure 18). */
const MODELS: [model: string, gpus: number][] = [
  ['facebook/opt-30b', 8],
  ['facebook/opt-30b', 16],
  ['facebook/opt-66b', 8],
  ['facebook/opt-66b', 16],
  ['huggyllama/llama-30b', 8],
  ['huggyllama/llama-30b', 16],
  ['meta-llama/Llama-2-70b-hf', 8],
  ['meta-llama/Llama-2-70b-hf', 16],
  ['meta-llama/Llama-2-70b-hf', 32],
];
const TRACES: TraceName[] = ['azure', 'servegen'];

export function cells({ quick, models: only }: RunOptions): Cell[] {
  const found: Cell[] = [];
  const models = (quick ? MODELS.slice(0, 1) : MODELS).filter(([name, gpus]) => `${name} ${gpus}`.includes(only ?? ''));
  for (const [model, gpus] of models) {
    for (const trace of TRACES) {
      for (let span = 0; span < 6; span++) {
        if (quick && span !== 2 && span !== 4) continue;
        const of = { model, gpus, trace, span };
        const setup = setupOf(of);
        const results = Object.fromEntries(POLICIES.map((name) => [name, runPolicy(setup, name)]));
        found.push({ of, name: setup.name, results: results as Cell['results'] });
      }
    }
  }
  return found;
}

const ratio = (cell: Cell, name: PolicyName, of: (result: TimelineResult) => number): number =>
  of(cell.results[name]) / Math.max(1e-9, of(cell.results.ours));
const geometric = (values: readonly number[]): number =>
  Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / Math.max(1, values.length));
const p99 = (result: TimelineResult) => result.latency.p99;

export function latencyClaims(found: readonly Cell[]): Section {
  const of = (name: PolicyName) => found.map((cell) => ratio(cell, name, p99));
  const lost = found.flatMap(({ results }) => Object.values(results)).reduce((sum, one) => sum + one.unanswered, 0);
  const means = Object.fromEntries(POLICIES.map((name) => [name, geometric(of(name))])) as Record<PolicyName, number>;
  const worst = (name: PolicyName) => Math.max(...of(name));
  return {
    title: 'Latency against other ways to serve (Figures 9 to 12, 17, 18)',
    rows: [
      row('requests without an answer, all runs', '', lost, { band: [0, 0] }),
      row('P99 of static over ours, geometric mean', '×', means.static, { paper: 1.5 }),
      row('the same, largest', '×', worst('static'), { paper: 2 }),
      row('P99 of static with tensor parallelism only over ours, mean', '×', means['static, TP only'], { paper: 1.5 }),
      row('the same, largest', '×', worst('static, TP only'), { paper: 2 }),
      row('P99 of reload over ours, mean', '×', means.reload, { paper: 1.3 }),
      row('P99 of Llumnix over ours, mean', '×', means.Llumnix, { paper: 1.32 }),
      row('P99 of Dynamo over ours, mean', '×', means.Dynamo, { paper: 1.12 }),
    ],
    verdicts: [
      {
        claim: 'P99 is 1.5 × better on average and up to 2 × than a static deployment',
        verdict: means.static >= 1.5 && worst('static') >= 2 ? 'reproduced' : 'refuted',
        reason: `${means['static, TP only'].toFixed(2)} × on average and up to ${worst('static, TP only').toFixed(2)} × over the best static deployment by tensor parallelism alone, ${means.static.toFixed(2)} × and ${worst('static').toFixed(2)} × over the best of all shapes in hindsight: pipelines of small stages are nearly the best shape for every kind in this model, so unequal replicas add some 8 % of capacity`,
      },
    ],
    text: latencyTable(found),
  };
}

function latencyTable(found: readonly Cell[]): string {
  const s = (value: number) => value.toFixed(1);
  const rows = found.flatMap(({ name, results }) =>
    POLICIES.map((policy) => {
      const { latency, ttft, tbt, tail, requestsPerS, switches, slots } = results[policy];
      return [
        name,
        policy,
        s(latency.mean),
        s(latency.p90),
        ...tail.map(s),
        s(ttft.p99),
        (tbt.mean * 1e3).toFixed(0),
        requestsPerS.toFixed(1),
        policy === 'ours' || policy === 'reload'
          ? String(switches)
          : `${slots[0]?.plan.map(({ shape, replicas }) => `${replicas}×${shape.tp}.${shape.pp}`).join('+')}`,
      ];
    }),
  );
  const head = [
    'run',
    'policy',
    'mean',
    'P90',
    'P95',
    'P96',
    'P97',
    'P98',
    'P99',
    'TTFT P99',
    'TBT ms',
    'req/s',
    'replicas×TP.PP or switches',
  ];
  return table(head, rows);
}
