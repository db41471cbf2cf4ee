import { expect, it } from 'vitest';
import { closeReason } from '../../../shared/wire/close-codes.ts';

it.each([
  ['short', 'a newer socket is open', 'a newer socket is open'],
  ['of 200 letters', 'a'.repeat(200), 'a'.repeat(123)],
  ['of characters with two bytes', `Host ${'é'.repeat(100)}`, `Host ${'é'.repeat(59)}`],
  ['with a character that would be cut in two', `${'a'.repeat(121)}😀`, 'a'.repeat(121)],
])('a reason %s has at most 123 bytes and whole characters', (_, text, reason) => {
  expect(closeReason(text)).toBe(reason);
  expect(new TextEncoder().encode(closeReason(text)).length).toBeLessThanOrEqual(123);
});
