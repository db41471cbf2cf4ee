/** How long a model may think before it answers, written into a request for engines that take such a limit. */
import { utf8 } from './bytes.ts';
import type { Edit } from './edits.ts';

/** vLLM's name for it, in the body's top level: https://docs.vllm.ai/en/latest/features/reasoning_outputs/ */
export const BUDGET_KEY = 'thinking_token_budget';

/** Where a body says something of it, or could. */
export interface BudgetAt {
  /** Of the value; absent where the key is. */
  value?: { start: number; end: number; tokens: number | undefined };
  /** Offset of the final top-level `}`. */
  topEnd: number;
}

/** Makes the body say at most `tokens`: what it says already and is less stays. */
export function budgetEdits({ value, topEnd }: BudgetAt, tokens: number): Edit[] {
  if (value === undefined) return [{ at: topEnd, remove: 0, insert: utf8(`,"${BUDGET_KEY}":${tokens}`) }];
  if (value.tokens !== undefined && value.tokens <= tokens) return [];
  return [{ at: value.start, remove: value.end - value.start, insert: utf8(String(tokens)) }];
}
