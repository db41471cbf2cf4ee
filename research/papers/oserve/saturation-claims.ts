/** Throughput under saturation beside the paper's (Figure 11). */
import { table } from '../../../scheduler/validate/text-table.ts';
import { row } from '../rows.ts';
import { LOAD, type Saturated, type SaturatedPolicy } from './saturation-runs.ts';
import type { Section } from './section.ts';

const WHY =
  'in three of the four runs ours has the deployment of static, and in the other one unequal replicas have 3 % more capacity';

export function saturationClaims(all: readonly Saturated[]): Section {
  const gain = (name: SaturatedPolicy, own: SaturatedPolicy) =>
    Math.exp(
      all.reduce((sum, { results }) => sum + Math.log(results[own].requestsPerS / results[name].requestsPerS), 0) /
        all.length,
    );
  return {
    title: `Throughput under saturation (Figure 11): ${all.length} runs at ${LOAD} times what a deployment can serve`,
    rows: [
      row('throughput of ours over static', '×', gain('static', 'ours'), {
        paper: 1.5,
        band: [1.5, 10],
        miss: { band: [0.8, 1.5], reason: WHY },
      }),
      row('throughput of ours over static, kinds known', '×', gain('static', 'ours, kinds known')),
      row('throughput of ours over reload', '×', gain('reload', 'ours')),
    ],
    verdicts: [
      {
        claim: 'throughput is 1.5 × that of static',
        verdict: gain('static', 'ours') >= 1.5 ? 'reproduced' : 'refuted',
        reason: `${gain('static', 'ours').toFixed(2)} ×: ${WHY}`,
      },
    ],
    text: table(
      ['run', 'policy', 'requests/s', 'begins with'],
      all.flatMap(({ name: run, results }) =>
        Object.entries(results).map(([name, { requestsPerS, deployment }]) => [
          run,
          name,
          requestsPerS.toFixed(1),
          deployment,
        ]),
      ),
    ),
  };
}
