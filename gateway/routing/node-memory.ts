/** What this isolate found out about nodes by asking them, and how much it may repeat. */
import type { Ending } from '../../shared/routing/attempts.ts';
import { Breakers } from '../../shared/routing/breaker.ts';
import { RetryBudget } from '../../shared/routing/retry-budget.ts';
import type { Env } from '../env.ts';
import { snapshots } from '../registry/snapshot.ts';
import { REGISTRY_NAME } from '../registry-name.ts';

export const retryBudget = new RetryBudget();

export const breakers = new Breakers(snapshots.view.nodes.live);

/** A request came to its end at a node. Where that moves its breaker, all isolates hear of it with their next snapshot. */
export function ended(
  asker: { env: Env; ctx: { waitUntil(work: Promise<unknown>): void } },
  session: string,
  ending: Ending,
  isProbe: boolean,
): void {
  const breaker = breakers.ended(session, ending, isProbe, Date.now());
  if (breaker === undefined) return;
  // A registry that is just moving does not hear it: the other isolates find out for themselves.
  const told = asker.env.REGISTRY.getByName(REGISTRY_NAME).live(session, { breaker });
  asker.ctx.waitUntil(Promise.resolve(told).catch(() => {}));
}
