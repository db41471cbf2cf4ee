/** The long report of a paper: computed in parts, each stored when it is done. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { filesOf } from '../../../research/papers/imported-files.ts';
import { KeptResults } from '../../../research/papers/oserve/kept-results.ts';
import type { CellOf } from '../../../research/papers/oserve/latency-cells.ts';
import { PartPool } from '../../../research/papers/oserve/part-pool.ts';
import { sectionSchema } from '../../../research/papers/oserve/section.ts';
import { NODE, ROOT } from '../../support/where.ts';

const folder = mkdtempSync(join(tmpdir(), 'otela-parts-'));
afterEach(() => rmSync(folder, { recursive: true, force: true }));
const PART = { section: 'assignment', quick: true } as const;

async function report(fresh = false) {
  const told: string[] = [];
  const pool = new PartPool({ threads: 2, fresh, kept: new KeptResults(folder), tell: (line) => told.push(line) });
  const [section] = await Promise.all([pool.compute(PART, sectionSchema), pool.run()]);
  return { section, told: told.join('\n') };
}

test('a report that was interrupted goes on where it was, unless all of it is wanted fresh', async () => {
  const first = await report();
  expect(first.told).toMatch(/1 parts on 1 threads[\s\S]*1 of 1: assignment/);
  const again = await report();
  expect(again.told).toMatch(/^1 of 1 parts are kept from before/);
  expect(again.section).toEqual(first.section);
  expect((await report(true)).told).toContain('1 of 1: assignment');
  // A part that was cut off while it was written counts as not computed.
  for (const name of readdirSync(folder)) writeFileSync(join(folder, name), '{"title": "App');
  expect((await report()).section).toEqual(first.section);
});

test('a part that fails is reported, and the parts after it are computed', async () => {
  const pool = new PartPool({ threads: 1, fresh: true, kept: new KeptResults(folder), tell: () => {} });
  // Its thread throws: there is no such model. It is expected to be the longest part, so it is the first.
  const run = { model: 'none', gpus: 1_000, trace: 'azure', span: 0, quick: true } as unknown as CellOf;
  const failed = expect(pool.compute({ run }, sectionSchema)).rejects.toThrow();
  const section = pool.compute(PART, sectionSchema);
  await Promise.all([failed, section, pool.run()]);
  expect((await section).title).toContain('Appendix D');
}, 60_000);

test('a result is kept for its own part alone, and for what the code that computes it says', () => {
  const kept = new KeptResults(folder);
  kept.write(PART, { title: 'one' });
  expect(kept.read(PART)).toEqual({ title: 'one' });
  expect(kept.read({ ...PART, quick: false })).toBeUndefined();
  const sources = [...filesOf(join(import.meta.dirname, '../../../research/papers/oserve/latency-cells.ts'))];
  const names = sources.map((path) => basename(path));
  expect(names).toContain('simplex.ts');
  // Files that only print may change.
  expect(names).not.toContain('latency-claims.ts');
});

test.each(['many', '0', '1.5'])('refuses --threads %s: taken as 1, a run of minutes would take an hour', (threads) => {
  const program = join(ROOT, 'research/papers/oserve/main.ts');
  const { status, stderr } = spawnSync(NODE, [program, '--threads', threads], { encoding: 'utf8' });
  expect([status, stderr]).toEqual([2, `--threads: "${threads}" is no whole number from 1 to 1024\n`]);
});
