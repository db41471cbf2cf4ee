import { describe, expect, it } from 'vitest';
import { EditedBody } from '../../../shared/openai/body-edits.ts';
import { reasoningBudgetEdits } from '../../../shared/openai/reasoning-budget.ts';
import { scanJson } from '../../../shared/openai/scan-json-body.ts';

function limited(body: string, tokens: number): string {
  const bytes = new TextEncoder().encode(body);
  const { topEnd, thinking } = scanJson(bytes);
  const edited = new EditedBody(reasoningBudgetEdits({ topEnd, ...(thinking && { value: thinking }) }, tokens));
  return Buffer.concat([...edited.push(bytes), ...edited.end()]).toString();
}

describe('a budget for reasoning', () => {
  it.each([
    ['is written where the body has none', '{"model":"m"}', '{"model":"m","thinking_token_budget":100}'],
    ['is written behind white space', '{"model":"m" }\n', '{"model":"m" ,"thinking_token_budget":100}\n'],
    [
      'takes the place of a larger one',
      '{"thinking_token_budget": 4000,"model":"m"}',
      '{"thinking_token_budget": 100,"model":"m"}',
    ],
    ['leaves a smaller one', '{"thinking_token_budget":7,"model":"m"}', '{"thinking_token_budget":7,"model":"m"}'],
    ['leaves the same', '{"thinking_token_budget":100,"model":"m"}', '{"thinking_token_budget":100,"model":"m"}'],
    [
      'takes the place of none',
      '{"thinking_token_budget":null,"model":"m"}',
      '{"thinking_token_budget":100,"model":"m"}',
    ],
    [
      'takes the place of no limit',
      '{"thinking_token_budget":-1,"model":"m"}',
      '{"thinking_token_budget":100,"model":"m"}',
    ],
    [
      'takes the place of a large one written otherwise',
      '{"thinking_token_budget":1e9,"model":"m"}',
      '{"thinking_token_budget":100,"model":"m"}',
    ],
    [
      'is not fooled by escapes',
      '{"thinking_token_b\\u0075dget":9999,"model":"m"}',
      '{"thinking_token_b\\u0075dget":100,"model":"m"}',
    ],
    [
      'is not fooled by depth',
      '{"model":"m","metadata":{"thinking_token_budget":1}}',
      '{"model":"m","metadata":{"thinking_token_budget":1},"thinking_token_budget":100}',
    ],
  ])('%s', (_, body, expected) => {
    expect(limited(body, 100)).toBe(expected);
  });

  it('cannot be said twice', () => {
    expect(() => limited('{"model":"m","thinking_token_budget":1,"thinking_token_budget":9}', 5)).toThrow(
      /more than once/,
    );
  });
});
