import { balance, balanceByHighs } from '../../../scheduler/assignment/demand-assignment.ts';
import { row } from '../rows.ts';
import type { Section } from './section.ts';

/**
 * Appendix D: replicas A (kind 1: 10/s, kind 2: 5/s), B and C (5/s, 3/s). Its text has 50 requests of kind 2, but its
 * times follow from 100.
 */
const RATES = [
  [10, 5],
  [5, 3],
  [5, 3],
];
const DEMAND = [100, 100];
const STATED = [100, 50];

/** Seconds to complete the demand if kind j is divided by `shares[j]`. */
const seconds = (shares: readonly (readonly number[])[], demand: readonly number[]): number =>
  Math.max(
    ...RATES.map((rates, k) =>
      rates.reduce((sum, rate, j) => sum + ((shares[j]?.[k] ?? 0) * (demand[j] ?? 0)) / rate, 0),
    ),
  );

export async function appendixD(): Promise<Section> {
  const uniform = seconds(
    [
      [0.5, 0.25, 0.25],
      [0.5, 0.25, 0.25],
    ],
    DEMAND,
  );
  /** One kind on A, the other one half each on B and C. */
  const apart = (onA: 1 | 2) =>
    seconds(
      [1, 2].map((kind) => (kind === onA ? [1, 0, 0] : [0, 0.5, 0.5])),
      DEMAND,
    );
  const problem = { rates: RATES, replicas: [1, 1, 1], demand: DEMAND };
  const [own, proof] = [balance(problem), await balanceByHighs(problem)];
  const stated = balance({ ...problem, demand: STATED });
  const mean = [1, 2].map((kind) => RATES.reduce((sum, rates) => sum + (rates[kind - 1] ?? 0), 0));
  return {
    title: 'Appendix D: three replicas, two kinds',
    rows: [
      row('case 1: kind 2 on A, kind 1 on B and C', 's', apart(2), { paper: 20, share: 0.001 }),
      row('case 2: kind 1 on A, kind 2 on B and C', 's', apart(1), { paper: 16.67, share: 0.001 }),
      row('case 3: best assignment with 100 requests of both kinds', 's', own.load, { paper: 13.67, share: 0.01 }),
      row('the same by HiGHS', 's', proof.load, { band: [own.load * (1 - 1e-6), own.load * (1 + 1e-6)] }),
      row('both kinds split as half, a quarter, a quarter', 's', uniform, { band: [14.9, 15.1] }),
      row('best assignment with the 50 of the text', 's', stated.load, { band: [9.1, 9.2] }),
    ],
    verdicts: [
      {
        claim: 'Appendix D: 20, 16.67 and 13.67 s',
        verdict: 'better',
        reason: `Cases 1 and 2 are exact. The figures follow from 100 requests of kind 2, not from the 50 of the text. The optimum is ${own.load.toFixed(3)} s; the paper rounds a share and gets 13.67. All replicas together do ${mean.join(' and ')} requests/s of each kind alone.`,
      },
    ],
  };
}
