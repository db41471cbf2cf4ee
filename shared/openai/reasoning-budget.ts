/** Limits the tokens of reasoning before the answer, for engines that accept such a limit in the request. */

import type { Edit } from './body-edits.ts';
import { encodeUtf8 } from './byte-search.ts';
import { BUDGET_KEY } from './known-body-keys.ts';
import type { BudgetPosition } from './scan-json-body.ts';

/** Makes the body limit reasoning to at most `tokens`. If the body sets a lower limit, it stays. */
export function reasoningBudgetEdits({ value, topEnd }: BudgetPosition, tokens: number): Edit[] {
  if (value === undefined) return [{ at: topEnd, remove: 0, insert: encodeUtf8(`,"${BUDGET_KEY}":${tokens}`) }];
  if (value.tokens !== undefined && value.tokens <= tokens) return [];
  return [{ at: value.start, remove: value.end - value.start, insert: encodeUtf8(String(tokens)) }];
}
