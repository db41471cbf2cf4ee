/**
 * Measures how well simple rules and a regression predict the length of a response when its request arrives. One pass,
 * in the order of the file: each response is predicted from earlier ones.
 */
import { LengthRegression } from './length-regression.ts';

/** Maximum users, prompts and models that are remembered. Further ones are not counted. */
const REMEMBERED_MAX = 1_000_000;
/**
 * Number of first blocks that must be equal for two prompts to count as similar: 64 tokens, the beginning of a system
 * prompt.
 */
const SIMILAR_BLOCKS = 4;
/** Features of the regression: prompt, mean of the model, last of the user, last of the prompt, blocks. */
const FEATURES = 5;

interface ObservedRequest {
  model: string;
  user: string | undefined;
  buckets: readonly string[] | null;
  input: number;
  output: number;
}

export const PREDICTION_RULES = [
  'regression',
  'mean of the model',
  "user's last response",
  'last response to a similar prompt',
  'as long as the prompt',
] as const;
type Rule = (typeof PREDICTION_RULES)[number];

interface RuleErrors {
  /** Relative errors: |predicted − actual| / actual. */
  relative: number[];
  /** Sum of |predicted − actual| in tokens, and the number of predictions. */
  tokens: number;
  count: number;
}

export class LengthPrediction {
  readonly #means = new Map<string, { count: number; sum: number }>();
  readonly #lasts = new Map<string, number>();
  readonly #regression = new LengthRegression(FEATURES);
  readonly errors: Record<Rule, RuleErrors> = Object.fromEntries(
    PREDICTION_RULES.map((rule) => [rule, { relative: [], tokens: 0, count: 0 }]),
  ) as unknown as Record<Rule, RuleErrors>;

  add({ model, user, buckets, input, output }: ObservedRequest): void {
    if (output < 1) return;
    const known = this.#means.get(model);
    const mean = known && known.sum / known.count;
    const byUser = user === undefined ? undefined : `u ${model} ${user}`;
    const byPrompt =
      buckets === null || buckets.length === 0 ? undefined : `p ${model} ${buckets.slice(0, SIMILAR_BLOCKS).join(' ')}`;
    const lastOfUser = byUser === undefined ? undefined : this.#lasts.get(byUser);
    const lastOfPrompt = byPrompt === undefined ? undefined : this.#lasts.get(byPrompt);
    this.#judge('mean of the model', mean, output);
    this.#judge("user's last response", lastOfUser, output);
    this.#judge('last response to a similar prompt', lastOfPrompt, output);
    this.#judge('as long as the prompt', input > 0 ? input : undefined, output);
    if (mean !== undefined) {
      const features = [input, mean, lastOfUser ?? mean, lastOfPrompt ?? mean, buckets?.length ?? 0];
      this.#judge('regression', this.#regression.predict(features), output);
      this.#regression.learn(features, output);
    }
    if (known !== undefined || this.#means.size < REMEMBERED_MAX)
      this.#means.set(model, { count: (known?.count ?? 0) + 1, sum: (known?.sum ?? 0) + output });
    for (const key of [byUser, byPrompt])
      if (key !== undefined && (this.#lasts.has(key) || this.#lasts.size < REMEMBERED_MAX))
        this.#lasts.set(key, output);
  }

  #judge(rule: Rule, predicted: number | undefined, output: number): void {
    if (predicted === undefined) return;
    const errors = this.errors[rule];
    const error = Math.abs(predicted - output);
    errors.tokens += error;
    errors.count++;
    if (errors.relative.length < REMEMBERED_MAX) errors.relative.push(error / output);
  }
}
