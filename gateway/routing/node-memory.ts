/** What this isolate found out about nodes by asking them, and how much it may repeat. */
import { Breakers } from '../../shared/routing/breaker.ts';
import type { BreakerState } from '../../shared/routing/load.ts';
import { RetryBudget } from '../../shared/routing/retry-budget.ts';
import type { Env } from '../env.ts';
import type { Background } from '../object-context.ts';
import { snapshots } from '../registry/snapshot.ts';
import { REGISTRY_NAME } from '../registry-name.ts';

export const retryBudget = new RetryBudget();

export const breakers = new Breakers(snapshots.view.nodes.live);

/** All isolates hear of it with their next snapshot. */
export function tellBreaker(session: string, breaker: BreakerState, { env, ctx }: { env: Env; ctx: Background }): void {
  // A registry that is just moving does not hear it: the other isolates find out for themselves.
  const told = env.REGISTRY.getByName(REGISTRY_NAME).live(session, { breaker });
  ctx.waitUntil(Promise.resolve(told).catch(() => {}));
}
