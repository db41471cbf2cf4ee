/**
 * Measures how well four simple rules predict the length of a response when its request arrives. One pass, in the order
 * of the file.
 */

/** Maximum users, prompts and models that are remembered. Further ones are not counted. */
const REMEMBERED_MAX = 1_000_000;
/**
 * Number of first blocks that must be equal for two prompts to count as similar: 64 tokens, the beginning of a system
 * prompt.
 */
const SIMILAR_BLOCKS = 4;

interface ObservedRequest {
  model: string;
  user: string | undefined;
  buckets: readonly string[] | null;
  input: number;
  output: number;
}

export const PREDICTION_RULES = [
  'mean of the model',
  "user's last response",
  'last response to a similar prompt',
  'as long as the prompt',
] as const;
type Rule = (typeof PREDICTION_RULES)[number];

export class Predictability {
  readonly #means = new Map<string, { count: number; sum: number }>();
  readonly #lasts = new Map<string, number>();
  /** Relative errors of each rule: |predicted − actual| / actual. */
  readonly errors: Record<Rule, number[]> = Object.fromEntries(PREDICTION_RULES.map((rule) => [rule, []])) as never;

  add({ model, user, buckets, input, output }: ObservedRequest): void {
    if (output < 1) return;
    const mean = this.#means.get(model);
    const byUser = user === undefined ? undefined : `u ${model} ${user}`;
    const byPrompt =
      buckets === null || buckets.length === 0 ? undefined : `p ${model} ${buckets.slice(0, SIMILAR_BLOCKS).join(' ')}`;
    this.#judge('mean of the model', mean && mean.sum / mean.count, output);
    this.#judge("user's last response", byUser && this.#lasts.get(byUser), output);
    this.#judge('last response to a similar prompt', byPrompt && this.#lasts.get(byPrompt), output);
    this.#judge('as long as the prompt', input > 0 ? input : undefined, output);
    this.#means.set(model, { count: (mean?.count ?? 0) + 1, sum: (mean?.sum ?? 0) + output });
    for (const key of [byUser, byPrompt])
      if (key !== undefined && (this.#lasts.has(key) || this.#lasts.size < REMEMBERED_MAX))
        this.#lasts.set(key, output);
  }

  #judge(rule: Rule, predicted: number | '' | undefined, output: number): void {
    if (typeof predicted === 'number' && this.errors[rule].length < REMEMBERED_MAX)
      this.errors[rule].push(Math.abs(predicted - output) / output);
  }
}
