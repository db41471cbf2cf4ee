import type { Evaluation } from './evaluate.ts';
import type { RateTable } from './rates.ts';
import { shapeText } from './types.ts';

/** A group fuller than this decides how much more can come. */
const FULL = 0.98;

/** In words: which replicas serve what, which are the bottleneck and which have slack, and what would come of more load. */
export function explain(table: RateTable, { plan, assignment }: Evaluation): string[] {
  const names = table.kinds.map(({ name }) => name);
  const fullest = assignment.load;
  const lines = plan.map(({ shape, replicas }, g) => {
    const load = assignment.loads[g] ?? 0;
    const kinds = (assignment.flow[g] ?? [])
      .map((amount, j): [number, string] => [amount, names[j] ?? `kind ${j}`])
      .filter(([amount]) => amount > 1e-9)
      .map(([amount, name]) => `${amount.toFixed(2)}/s of "${name}"`);
    const role = load >= fullest * FULL ? 'bottleneck' : `slack of ${(100 * (1 - load / fullest)).toFixed(0)} %`;
    const work = kinds.length > 0 ? kinds.join(', ') : 'nothing';
    return `${replicas} × ${shapeText(shape)}: ${work}; ${(100 * load).toFixed(0)} % full: ${role}`;
  });
  const unserved = (assignment.served.length > 0 ? names : []).filter(
    (_, j) => (assignment.served[j] ?? 0) === 0 && plan.every(({ shape }) => (table.of(shape).rates[j] ?? 0) === 0),
  );
  for (const name of unserved) lines.push(`no replica can hold "${name}"`);
  if (fullest > 1)
    lines.push(`the demand is ${fullest.toFixed(2)} times what this can do: requests wait longer and longer`);
  else if (fullest > 0) lines.push(`it could take ${(1 / fullest).toFixed(2)} times the demand of this mix`);
  return lines;
}
