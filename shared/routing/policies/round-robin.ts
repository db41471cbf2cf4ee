import type { Candidate } from '../candidates.ts';
import type { Policy } from '../routing-policy.ts';
import { statelessPolicy } from './stateless.ts';

/** Maximum number of models with a remembered turn. A forgotten model starts with its first node. */
const MODELS_MAX = 1_024;

/**
 * Round robin per model. Each list of candidates has its own counter, which starts at the model's counter. If two keys
 * that see different nodes sent requests alternately and shared a counter, each would always get the same nodes.
 */
export function roundRobin(): Policy {
  const models = new Map<string, number>();
  const lists = new WeakMap<readonly Candidate[], { turn: number }>();
  return statelessPolicy('round-robin', (candidates, { model }) => {
    if (candidates.length === 0) return undefined;
    let list = lists.get(candidates);
    if (list === undefined) {
      list = { turn: models.get(model) ?? 0 };
      lists.set(candidates, list);
    }
    const chosen = candidates[list.turn % candidates.length];
    list.turn++;
    if (models.size >= MODELS_MAX && !models.has(model)) models.clear();
    models.set(model, list.turn);
    return chosen;
  });
}
