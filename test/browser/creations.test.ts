import { expect, test } from 'vitest';
import { IdempotencyKeys } from '../../dashboard/api/idempotency-keys.ts';

test('a creation whose answer was lost has the same key again, an answered one a new key', () => {
  let n = 0;
  const creations = new IdempotencyKeys(() => `key-${n++}`);
  expect([creations.keyOf('a'), creations.keyOf('a'), creations.keyOf('b')]).toEqual(['key-0', 'key-0', 'key-1']);
  creations.answered('a');
  expect(creations.keyOf('a')).toBe('key-2');
});

test('creations without an answer are kept within their bound', () => {
  let n = 0;
  const creations = new IdempotencyKeys(() => `key-${n++}`);
  for (let i = 0; i < 100; i++) creations.keyOf(`${i}`);
  expect([creations.keyOf('99'), creations.keyOf('0')]).toEqual(['key-99', 'key-100']);
});
