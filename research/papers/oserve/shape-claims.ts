/** Which deployment suits which kind of requests (Figure 1), and what one deployment for all kinds loses. */
import { table } from '../../../scheduler/validate/text-table.ts';
import { planText } from '../../orchestration/deployment-plan.ts';
import { row } from '../rows.ts';
import type { Section } from './section.ts';
import { type SetupOf, setupOf, uniformsOf } from './setups.ts';

const SETUPS: readonly SetupOf[] = [
  { model: 'facebook/opt-30b', gpus: 8, trace: 'azure', span: 2 },
  { model: 'facebook/opt-66b', gpus: 8, trace: 'servegen', span: 2 },
  { model: 'meta-llama/Llama-2-70b-hf', gpus: 8, trace: 'servegen', span: 2 },
];

interface Shapes {
  name: string;
  kinds: string[];
  /** Best deployment of each kind, and its requests/s. */
  best: { plan: string; rate: number }[];
  /** `plans[i].shares[kind]`: requests/s as a share of the best deployment's. */
  plans: { plan: string; shares: number[] }[];
}

function shapesOf(of: SetupOf): Shapes {
  const { name, table: rates } = setupOf(of);
  const plans = uniformsOf(rates, rates.site.gpus).flatMap((plan) => {
    const [group] = plan;
    if (group === undefined) return [];
    return [{ plan: planText(plan), rates: rates.of(group.shape).rates.map((rate) => rate * group.replicas) }];
  });
  const best = rates.kinds.map((_, j) =>
    plans.reduce((most, { plan, rates: own }) => ((own[j] ?? 0) > most.rate ? { plan, rate: own[j] ?? 0 } : most), {
      plan: '',
      rate: 0,
    }),
  );
  return {
    name,
    kinds: rates.kinds.map((kind) => kind.name),
    best,
    plans: plans.map(({ plan, rates: own }) => ({
      plan,
      shares: own.map((rate, j) => rate / Math.max(1e-9, best[j]?.rate ?? 0)),
    })),
  };
}

export function shapeClaims(): Section {
  const found = SETUPS.map(shapesOf);
  const distinct = Math.max(...found.map(({ best }) => new Set(best.map(({ plan }) => plan)).size));
  // The share of the throughput that the best compromise has for the kind that it suits least.
  const compromises = found.map(({ plans }) => Math.max(...plans.map(({ shares }) => Math.min(...shares))));
  return {
    title: 'Deployments and kinds (Figure 1)',
    rows: [
      row('deployments that are the best for a kind, most of a model', '', distinct, { band: [2, 8] }),
      row(
        'requests/s of one deployment for all kinds: its worst kind, of the best for this kind',
        '×',
        Math.min(...compromises),
        {
          band: [0.3, 1],
        },
      ),
    ],
    verdicts: [
      {
        claim: 'different kinds of requests prefer different deployments',
        verdict: distinct >= 2 ? 'reproduced' : 'refuted',
        reason: `${distinct} deployments are best for a kind, but one deployment has at least ${compromises.map((one) => `${(100 * one).toFixed(0)} %`).join(', ')} of the best throughput of every kind`,
      },
    ],
    text: found
      .map(({ name, kinds, best, plans }) =>
        table(
          [`requests/s, ${name}`, ...kinds],
          [
            ...plans.map(({ plan, shares }) => [plan, ...shares.map((share) => `${(100 * share).toFixed(0)} %`)]),
            ['best, requests/s', ...best.map(({ rate }) => rate.toFixed(1))],
          ],
        ),
      )
      .join('\n\n'),
  };
}
