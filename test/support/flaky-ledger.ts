/** `test/flaky.json`: what passed at a second try only, with the day. A test that stands there twice is to be mended or deleted. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { ROOT } from './where.ts';

const LEDGER = join(ROOT, 'test/flaky.json');

/** The oldest go first. */
const ENTRIES_MAX = 500;

const ledgerSchema = z.array(
  z.object({
    /** `file > test`, as vitest names it. */
    test: z.string(),
    /** UTC, `2026-11-24`. */
    day: z.string(),
  }),
);
export type Flaky = z.infer<typeof ledgerSchema>[number];

/** Nothing where there is no file. @throws ZodError for a file of another form */
export function readLedger(path = LEDGER): Flaky[] {
  return existsSync(path) ? ledgerSchema.parse(JSON.parse(readFileSync(path, 'utf8'))) : [];
}

/** Adds a line for each of `tests`. */
export function addToLedger(tests: readonly string[], now: Date, path = LEDGER): void {
  if (tests.length === 0) return;
  const day = now.toISOString().slice(0, 10);
  const entries = [...readLedger(path), ...tests.map((test) => ({ test, day }))].slice(-ENTRIES_MAX);
  writeFileSync(path, `${JSON.stringify(entries, undefined, 2)}\n`);
}

/** Tests that stand in the ledger more than once, each with its days. */
export function repeated(entries: readonly Flaky[]): string[] {
  const days = Map.groupBy(entries, ({ test }) => test);
  return [...days]
    .filter(([, all]) => all.length > 1)
    .map(([test, all]) => `${test}: ${all.map(({ day }) => day).join(', ')}`);
}
