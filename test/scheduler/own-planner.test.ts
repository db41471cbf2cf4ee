import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { maxFlow } from '../../examples/plan/edmonds-karp.ts';
import { ROOT } from '../support/where.ts';
import { file, INVENTORY, model, plan, workload } from './support/plan-files.ts';

let planners = 0;

describe("a planner of one's own", () => {
  it('by maximum flow routes by its flow, through its own pick', async () => {
    const { code, out } = await plan(
      INVENTORY,
      workload(model()),
      '--planner',
      join(ROOT, 'examples/plan/max-flow.ts'),
    );
    expect(code).toBe(0);
    expect(out).toMatch(/Plan for max-flow/);
    expect(out).toMatch(/maximum flow/);
  });

  it.each([
    ['export default 3;', /no function/],
    ['nonsense(', /cannot load/],
    [
      "export default async (pools) => ({ placements: [{ model: 'meta-llama/Llama-3.1-8B-Instruct', pool: pools[0].id, tp: 1, replicas: 9, share: 1 }] });",
      /9 GPUs of a, which has 8/,
    ],
    [
      "export default async (pools) => ({ placements: [{ model: 'x', pool: pools[0].id, tp: 1, replicas: 1, share: 1 }] });",
      /no such model/,
    ],
    [
      "export default async (pools) => ({ placements: [{ model: 'meta-llama/Llama-3.1-8B-Instruct', pool: pools[0].id, tp: 3, replicas: 1, share: 1 }] });",
      /3 does not divide/,
    ],
  ])('that is wrong is refused: %s', async (text, message) => {
    const { code, log } = await plan(
      INVENTORY,
      workload(model()),
      '--planner',
      file(text, `planner-${++planners}.mjs`),
    );
    expect(log).toMatch(message);
    expect(code).toBe(2);
  });

  it('the flow is the maximum, and what flows in flows out', () => {
    // Cormen et al., figure 26.1: 23.
    const edges = [
      ['s', '1', 16],
      ['s', '2', 13],
      ['1', '3', 12],
      ['2', '1', 4],
      ['2', '4', 14],
      ['3', '2', 9],
      ['3', 't', 20],
      ['4', '3', 7],
      ['4', 't', 4],
    ].map(([from, to, capacity]) => ({ from: String(from), to: String(to), capacity: Number(capacity) }));
    const { total, flow } = maxFlow(edges, 's', 't');
    expect(total).toBe(23);
    for (const node of ['1', '2', '3', '4']) {
      const sum = (end: 'from' | 'to') =>
        edges
          .filter((edge) => edge[end] === node)
          .reduce((all, { from, to }) => all + (flow.get(`${from}>${to}`) ?? 0), 0);
      expect(sum('from')).toBeCloseTo(sum('to'));
    }
  });
});
