import type { AccountLimits } from '../accounts/account.ts';
import type { Env } from '../env.ts';
import { objectOrUnavailable } from './step-failures.ts';

/**
 * The tokens that a batch may still use this month. Read from the limits object every few seconds. In between, the
 * tokens that its lines used and are expected to use are subtracted, so that running lines do not exceed the budget.
 * Limits on requests and tokens per minute do not apply to lines.
 */
export class TokenBudget {
  /** Tokens that remain; undefined: no limit. */
  #remaining: number | undefined;

  /**
   * Reads the remaining tokens again, for each model that the batch's lines name. The smallest value counts for all
   * lines. Rejects if the values cannot be read; the last value then stays.
   */
  async refresh(
    env: Pick<Env, 'LIMITS'>,
    keyId: string,
    limits: AccountLimits | undefined,
    models: readonly string[],
  ): Promise<void> {
    if (limits === undefined || !hasMonthlyTokens(limits)) {
      this.#remaining = undefined;
      return;
    }
    const { subject, ...sets } = limits;
    // Most batches name one model, so there are few calls.
    const asked = models.length === 0 ? [undefined] : models;
    const lefts = await Promise.all(
      asked.map(async (name) => {
        const uses = env.LIMITS.getByName(subject).uses({ keyId, ...sets, model: name });
        const used = await objectOrUnavailable('limits', uses);
        return [...used.key, ...used.user, ...used.project]
          .filter(({ limit, model }) => limit === 'tokens_per_month' && (model === undefined || model === name))
          .map(({ allowed, used }) => allowed - used);
      }),
    );
    const least = Math.min(...lefts.flat());
    this.#remaining = Number.isFinite(least) ? least : undefined;
  }

  /** Subtracts tokens that lines of this batch used. */
  spend(tokens: number): void {
    if (this.#remaining !== undefined) this.#remaining -= tokens;
  }

  /** @param running tokens that leased lines are expected to use */
  isUsedUp(running: number): boolean {
    return this.#remaining !== undefined && this.#remaining - running <= 0;
  }
}

function hasMonthlyTokens({ key, user, project }: AccountLimits): boolean {
  const sets = [key, user, project].flatMap((set) => [set, ...Object.values(set?.models ?? {})]);
  return sets.some((set) => set?.tokens_per_month !== undefined);
}
