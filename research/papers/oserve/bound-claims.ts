/** The least P99 of all deployments beside the paper's gain and ours. */
import { table } from '../../../scheduler/validate/text-table.ts';
import { row } from '../rows.ts';
import { type Bound, GPUS } from './bound-runs.ts';
import type { Section } from './section.ts';

export function boundClaims(found: readonly Bound[]): Section {
  const mean = (of: (bound: Bound) => number) =>
    Math.exp(found.reduce((sum, one) => sum + Math.log(of(one)), 0) / found.length);
  const reachable = mean(({ staticS, leastS }) => staticS / leastS);
  return {
    title: `The least P99 of all deployments: ${found.length} spans, OPT-30B on ${GPUS} H100`,
    rows: [
      row('P99 of static over the least of all sequences, geometric mean', '×', reachable, {
        paper: 1.5,
        reported: 'the bound of what any planner could reach; the paper prints none',
      }),
      row(
        'P99 of the best static in hindsight over the least of all sequences',
        '×',
        mean(({ hindsightS, leastS }) => hindsightS / leastS),
      ),
      row(
        'P99 of static over ours on these spans',
        '×',
        mean(({ staticS, oursS }) => staticS / oursS),
      ),
      row(
        'P99 of ours over the least of all sequences',
        '×',
        mean(({ oursS, leastS }) => oursS / leastS),
        { band: [0.9, 3] },
      ),
    ],
    text: table(
      ['span', 'sequences', 'static', 'in hindsight', 'ours', 'least', 'static over least', 'reached by'],
      found.map(({ name, tried, staticS, hindsightS, oursS, leastS, least }) => [
        name,
        tried,
        ...[staticS, hindsightS, oursS, leastS].map((s) => s.toFixed(2)),
        (staticS / leastS).toFixed(2),
        least,
      ]),
    ),
    verdicts: [
      {
        claim: 'P99 1.5 × better than static, on average',
        verdict: reachable >= 1.5 ? 'reproduced' : 'refuted',
        reason: `with perfect knowledge and free switches the least of all sequences is ${reachable.toFixed(2)} × better`,
      },
    ],
  };
}
