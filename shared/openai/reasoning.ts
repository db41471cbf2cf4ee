/** Limits how long a model may reason before it answers, for engines that accept such a limit in the request. */
import { encodeUtf8 } from './bytes.ts';
import type { Edit } from './edits.ts';
import { BUDGET_KEY } from './known-keys.ts';
import type { BudgetPosition } from './scan.ts';

/** Makes the body limit reasoning to at most `tokens`; a lower limit is kept. */
export function reasoningBudgetEdits({ value, topEnd }: BudgetPosition, tokens: number): Edit[] {
  if (value === undefined) return [{ at: topEnd, remove: 0, insert: encodeUtf8(`,"${BUDGET_KEY}":${tokens}`) }];
  if (value.tokens !== undefined && value.tokens <= tokens) return [];
  return [{ at: value.start, remove: value.end - value.start, insert: encodeUtf8(String(tokens)) }];
}
