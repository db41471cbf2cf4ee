import type { Lifecycle, ServedModel } from '../../../shared/lattice/node.ts';
import type { Fact } from '../../engine/facts.ts';
import type { Health } from '../../engine/health.ts';

/** What the log says when the engine's health has changed. `before` is the state published until now. */
export function healthNews(
  before: Lifecycle,
  health: Health,
  models: readonly ServedModel[],
  facts: readonly Fact[],
): string[] {
  if (!health.everReady) return [];
  if (before === 'JOIN') {
    const names = models.map(({ id }) => id);
    const idle = new Set(facts.flatMap(({ model }) => (model === undefined || names.includes(model) ? [] : [model])));
    return [
      `serving ${names.join(', ') || 'no model yet'}`,
      ...[...idle].map((model) => `warning: --fact names ${model}, which this engine does not serve`),
    ];
  }
  if (!health.answering) return ['the engine does not answer any more; waiting for it'];
  return [`models now: ${models.map(({ id, state }) => `${id} (${state})`).join(', ') || 'none'}`];
}
