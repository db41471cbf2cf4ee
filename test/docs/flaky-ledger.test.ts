import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { addToLedger, readLedger, repeated } from '../support/flaky-ledger.ts';

it('no test needed a second try twice: mend it at its cause, or delete it, and take its lines out of test/flaky.json', () => {
  expect(repeated(readLedger())).toEqual([]);
});

it('a test that passed at a second try on two days stands in the ledger with both', () => {
  const directory = mkdtempSync(join(tmpdir(), 'otela-ledger-'));
  const path = join(directory, 'flaky.json');
  try {
    addToLedger([], new Date('2026-11-23T23:00:00Z'), path);
    expect(readLedger(path)).toEqual([]);
    addToLedger(['a.test.ts > one'], new Date('2026-11-23T23:00:00Z'), path);
    addToLedger(['a.test.ts > one', 'b.test.ts > two'], new Date('2026-11-24T01:00:00Z'), path);
    expect(readLedger(path)).toHaveLength(3);
    expect(repeated(readLedger(path))).toEqual(['a.test.ts > one: 2026-11-23, 2026-11-24']);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
