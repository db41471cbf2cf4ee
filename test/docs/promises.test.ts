/** packaging/floating-promises.ts finds promises that are dropped. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { droppedPromises } from '../../packaging/floating-promises.ts';
import { ROOT } from '../support/where.ts';

const SOURCE = `
declare function work(): Promise<number>;
declare function maybe(): Promise<number> | undefined;
declare function every(ms: number, tick: () => void): void;
declare function each(run: () => void | Promise<void>): void;
declare const some: { stop?(): Promise<void> };
declare let kept: Promise<number>;
const log = (_: unknown) => {};

void work(); // bad
work(); // bad
maybe(); // bad
void some.stop?.(); // bad
(work()); // bad
Math.random() < 0.5 && work(); // bad
Math.random() < 0.5 ? work() : log(1); // bad
work().then(log); // bad
work().finally(() => log(1)); // bad
every(1, async () => log(await work())); // bad
every(1, () => work()); // bad

await work();
kept = work();
log(work());
work().catch(log);
void work().then(log, log);
work().then(log).catch(log).finally(() => log(1));
each(async () => log(await work()));
every(1, () => work().catch(log));
every(1, () => log(work()));
void log(kept);
export {};
`;

it('finds each promise that is dropped, and no other one', () => {
  // In the clone, because the compiler looks for its declarations there.
  const folder = mkdtempSync(join(ROOT, 'test/docs/.promises-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, 'a.ts'), SOURCE);
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ extends: '../../../tsconfig.base.json' }));
  const bad = SOURCE.split('\n').flatMap((line, i) => (line.endsWith('// bad') ? [`a.ts:${i + 1}`] : []));
  const found = droppedPromises(folder, { 'tsconfig.json': ['*.ts'] });
  expect(found.map((line) => line.split(' ')[0]).sort()).toEqual(bad.sort());
});
