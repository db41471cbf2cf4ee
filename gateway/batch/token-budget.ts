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
    if (limits?.key?.tokens_per_month === undefined && limits?.project?.tokens_per_month === undefined) {
      this.#left = undefined;
      return;
    }
    const { subject, key, project } = limits;
    const used = await env.LIMITS.getByName(subject).uses({ keyId, key, project });
    const months = [...used.key, ...used.project].filter(({ limit }) => limit === 'tokens_per_month');
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
