import type { AccountLimits } from '../accounts/account.ts';
import type { Env } from '../env.ts';
import { objectOrUnavailable } from './step-failures.ts';

/**
 * The tokens and the GPU time that a batch may still use this month. Read from the limits object every few seconds. In between, the
 * tokens that its lines used and are expected to use are subtracted, so that running lines do not exceed the budget.
 * Limits on requests and tokens per minute do not apply to lines.
 */
export class MonthlyBudget {
  /** Tokens that remain; undefined: no limit. */
  #remaining: number | undefined;
  /** GPU time that remains, in milliseconds; undefined: no limit. */
  #remainingGpuMs: number | undefined;

  /**
   * Reads the remaining tokens and GPU time again, for each model that the batch's lines name. The smallest value counts for all
   * lines. Rejects if the values cannot be read; the last value then stays.
   */
  async refresh(
    env: Pick<Env, 'LIMITS'>,
    keyId: string,
    limits: AccountLimits | undefined,
    models: readonly string[],
  ): Promise<void> {
    if (limits === undefined || !hasMonthlyLimits(limits)) {
      this.#remaining = undefined;
      this.#remainingGpuMs = undefined;
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
          .filter(({ model }) => model === undefined || model === name)
          .map(({ limit, allowed, used }) => ({ limit, left: allowed - used }));
      }),
    );
    const least = (wanted: string) => {
      const left = lefts.flat().flatMap(({ limit, left }) => (limit === wanted ? [left] : []));
      return left.length === 0 ? undefined : Math.min(...left);
    };
    this.#remaining = least('tokens_per_month');
    const gpuSeconds = least('gpu_seconds_per_month');
    this.#remainingGpuMs = gpuSeconds === undefined ? undefined : gpuSeconds * 1_000;
  }

  /** Subtracts what lines of this batch used. */
  spend(tokens: number, gpuMs: number): void {
    if (this.#remaining !== undefined) this.#remaining -= tokens;
    if (this.#remainingGpuMs !== undefined) this.#remainingGpuMs -= gpuMs;
  }

  get isGpuTimeUsedUp(): boolean {
    return this.#remainingGpuMs !== undefined && this.#remainingGpuMs <= 0;
  }

  /** @param running tokens that leased lines are expected to use */
  isUsedUp(running: number): boolean {
    return this.#remaining !== undefined && this.#remaining - running <= 0;
  }
}

function hasMonthlyLimits({ key, user, project }: AccountLimits): boolean {
  const sets = [key, user, project].flatMap((set) => [set, ...Object.values(set?.models ?? {})]);
  const hasGpuSeconds = [key, user, project].some((set) => set?.gpu_seconds_per_month !== undefined);
  return hasGpuSeconds || sets.some((set) => set?.tokens_per_month !== undefined);
}
