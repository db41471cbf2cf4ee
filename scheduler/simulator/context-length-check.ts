import type { Model } from '../catalogue/model.ts';
import { type LengthDistribution, meanLength } from './length-distribution.ts';

/**
 * Returns why requests of these lengths do not suit the model, or undefined. An engine refuses a prompt that fills the
 * context, and ends a response when the context is full. If the mean request does not fit, the workload is a mistake;
 * single longer requests are refused or cut.
 */
export function contextLengthProblem(
  model: Model,
  input: LengthDistribution,
  output: LengthDistribution,
): string | undefined {
  const { id, context } = model;
  if (context === 0) return undefined;
  const [prompt, answer] = [meanLength(input), meanLength(output)];
  if (prompt + answer <= context) return undefined;
  const tokens = (count: number) => Math.round(count).toLocaleString('en');
  return `${id} has a context of ${tokens(context)} tokens; prompts of ${tokens(prompt)} and responses of ${tokens(answer)} on average do not fit`;
}
