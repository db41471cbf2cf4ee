/** Limits how long a model may reason before it answers, for engines that accept such a limit in the request. */
import { encodeUtf8 } from './bytes.ts';
import type { Edit } from './edits.ts';

/** vLLM's name for it, at the body's top level: https://docs.vllm.ai/en/latest/features/reasoning_outputs/ */
export const BUDGET_KEY = 'thinking_token_budget';

/** Where a body has the key, or could have it. */
export interface BudgetPosition {
  /** Position of the value; absent if the key is absent. */
  value?: { start: number; end: number; tokens: number | undefined };
  /** Offset of the final top-level `}`. */
  topEnd: number;
}

/** Makes the body limit reasoning to at most `tokens`; a lower limit is kept. */
export function reasoningBudgetEdits({ value, topEnd }: BudgetPosition, tokens: number): Edit[] {
  if (value === undefined) return [{ at: topEnd, remove: 0, insert: encodeUtf8(`,"${BUDGET_KEY}":${tokens}`) }];
  if (value.tokens !== undefined && value.tokens <= tokens) return [];
  return [{ at: value.start, remove: value.end - value.start, insert: encodeUtf8(String(tokens)) }];
}
