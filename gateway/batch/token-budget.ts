import type { AccountLimits } from '../accounts/account.ts';
import type { Env } from '../env.ts';

/**
 * The tokens that a batch may still use this month. Asked of the limits every few seconds; in between what its own lines use and may use is
 * taken off here, so that a budget is not overrun by what runs at nodes. Limits of requests and tokens per minute do not hold for lines.
 */
export class TokenBudget {
  /** Undefined: no limit. */
  #left: number | undefined;

  /** Asks anew. What cannot be asked now stays as it was. */
  async refresh(env: Env, keyId: string, limits: AccountLimits | undefined): Promise<void> {
    const sets = [limits?.key, limits?.user, limits?.project];
    if (limits === undefined || sets.every((one) => one?.tokens_per_month === undefined)) {
      this.#left = undefined;
      return;
    }
    const { subject, ...asked } = limits;
    const used = await env.LIMITS.getByName(subject).uses({ keyId, ...asked });
    const all = [...used.key, ...used.user, ...used.project];
    const months = all.filter(({ limit, model }) => limit === 'tokens_per_month' && model === undefined);
    this.#left = Math.min(...months.map(({ allowed, used }) => allowed - used));
  }

  /** Lines of this batch used so many. */
  spend(tokens: number): void {
    if (this.#left !== undefined) this.#left -= tokens;
  }

  /** @param running tokens that lines at nodes are expected to use */
  isUsedUp(running: number): boolean {
    return this.#left !== undefined && this.#left - running <= 0;
  }
}
