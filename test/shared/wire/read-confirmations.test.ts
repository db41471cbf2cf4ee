import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ReadConfirmations, UNREAD_MAX_BYTES } from '../../../shared/wire/read-confirmations.ts';

test('a peer that never answers is stuck within the bound and one message, and is asked once', () => {
  const receipts = new ReadConfirmations(Math.random);
  let sent = 0;
  let asked = 0;
  while (!receipts.stuck) {
    if (receipts.sent(1_000) !== undefined) asked++;
    sent += 1_000;
  }
  expect(sent).toBeLessThanOrEqual(UNREAD_MAX_BYTES + 1_000);
  expect(asked).toBe(1);
});

test('a peer that guesses the numbers of its answers is stuck as well', () => {
  const receipts = new ReadConfirmations(Math.random);
  for (let n = 0; !receipts.stuck; n++) {
    receipts.sent(10_000);
    expect(receipts.answered(n)).toBe(false);
    expect(receipts.answered(2 ** 40 + n)).toBe(false);
  }
});

test('a peer that reads with any delay below the bound is never stuck', () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 1, max: 60_000 }), { maxLength: 400 }),
      fc.integer({ min: 0, max: 60 }),
      (sizes, late) => {
        const receipts = new ReadConfirmations(Math.random);
        const questions: { at: number; nonce: number }[] = [];
        sizes.forEach((size, at) => {
          const nonce = receipts.sent(size);
          if (nonce !== undefined) questions.push({ at, nonce });
          const [first] = questions;
          if (first !== undefined && at - first.at >= late) {
            expect(receipts.answered(first.nonce)).toBe(true);
            questions.shift();
          }
          if (late <= 30) expect(receipts.stuck).toBe(false);
        });
      },
    ),
  );
});
