import type { Candidate } from '../candidates.ts';
import type { Policy } from '../policy.ts';
import { statelessPolicy } from './stateless.ts';

/** Models whose turns are remembered; one that is forgotten begins anew. */
const MODELS_MAX = 1_024;

/**
 * Each in its turn, for each model. A list of candidates has a count of its own, which goes on where the model's stands: two keys
 * that see different nodes and ask by turns would else always draw the same ones of a common count.
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
