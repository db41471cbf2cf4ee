import type { AccountLimits } from '../accounts/account.ts';
import type { Env } from '../env.ts';
import { objectOrUnavailable } from './obstacle.ts';

/**
 * The tokens that a batch may still use this month. Read from the limits every few seconds; in between, this subtracts
 * what its lines use and may use, so that running lines do not exceed the budget. Limits on requests and tokens per
 * minute do not apply to lines.
 */
export class TokenBudget {
  /** Undefined: no limit. */
  #remaining: number | undefined;

  /**
   * Reads the limits again, for the models that its lines name: if the tokens of one are used up, all lines wait. If
   * they cannot be read, `refresh` rejects and the last value stays.
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
    // Few batches name several models.
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

  /** Lines of this batch used this many tokens. */
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
