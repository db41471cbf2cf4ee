/** What unequal replicas bring, and what the assignment of kinds adds to them (Figure 14): models × spans. */
import { table } from '../../../scheduler/validate/text-table.ts';
import { type Row, row } from '../rows.ts';
import { runOurs, staticOf } from './policies.ts';
import type { RunOptions } from './section.ts';
import { setupOf } from './setups.ts';

const MODELS = ['facebook/opt-30b', 'facebook/opt-66b', 'huggyllama/llama-30b', 'meta-llama/Llama-2-70b-hf'];
/** The paper has its first and its last span: P1 and P6. */
const SPANS = [0, 5];

interface Variants {
  name: string;
  /** P99, seconds. */
  uniformS: number;
  unequalS: number;
  assignedS: number;
  switchingS: number;
  knownS: number;
}

function variantsOf(model: string, gpus: number, span: number): Variants {
  const setup = setupOf({ model, gpus, trace: 'servegen', span });
  const p99 = (settings?: Parameters<typeof runOurs>[1]) => runOurs(setup, settings).latency.p99;
  return {
    name: setup.name,
    uniformS: staticOf(setup).latency.p99,
    unequalS: p99({ fixedPlan: true, untyped: true }),
    assignedS: p99({ fixedPlan: true }),
    switchingS: p99(),
    knownS: p99({ judged: setup.kinds }),
  };
}

const WHY =
  'the best uniform deployment has nearly the capacity of the best unequal one, and a gateway misjudges half of the kinds of ServeGen at arrival';

/** Kinds are as judged at arrival, and the uniform deployment was the best on the past. */
export function ablationFigure({ quick }: RunOptions): { rows: Row[]; text: string } {
  const found = quick
    ? [variantsOf(MODELS[0] ?? '', 8, 0)]
    : MODELS.flatMap((model) => SPANS.map((span) => variantsOf(model, 16, span)));
  const gains = (of: (one: Variants) => number) => found.map((one) => one.uniformS / of(one));
  const mean = (values: readonly number[]) =>
    Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);
  const missed = (paper: number, ours: number, claim: string) =>
    row(claim, '×', ours, { paper, band: [paper, 10], miss: { band: [0.7, paper], reason: WHY } });
  const [unequal, assigned] = [gains(({ unequalS }) => unequalS), gains(({ assignedS }) => assignedS)];
  return {
    rows: [
      missed(1.34, mean(unequal), 'P99 of uniform over unequal replicas (Figure 14), geometric mean'),
      missed(1.52, Math.max(...unequal), 'the same, largest'),
      missed(1.64, mean(assigned), 'P99 of uniform over unequal replicas with kinds assigned, geometric mean'),
      missed(2.09, Math.max(...assigned), 'the same, largest'),
      row('P99 of uniform over ours, switching included', '×', mean(gains(({ switchingS }) => switchingS))),
      row('P99 of uniform over ours, kinds known', '×', mean(gains(({ knownS }) => knownS))),
    ],
    text: table(
      ['P99 s', 'uniform', 'unequal replicas', 'and kinds assigned', 'and switching', 'kinds known'],
      found.map(({ name, ...seconds }) => [name, ...Object.values(seconds).map((s) => s.toFixed(2))]),
    ),
  };
}
