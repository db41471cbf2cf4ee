/**
 * `npm run chaos`: sixteen agents, victims, clients. `-- --minutes 10` is how long (A) lasts; `--short` the form of `npm test`; `--only a,c`
 * some parts. Prints the findings and writes everything to bench/results/chaos.json, with `--report` into docs/resilience.md too; exit code 1 if
 * one is missed.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { parseArgs } from 'node:util';
import { machine } from '../../bench/machine.ts';
import { endAll } from '../support/processes.ts';
import { chaos, findings, longForm, type PartName, shortForm } from './chaos.ts';
import { publish, RESULT } from './report.ts';
import { resultSchema } from './result.ts';

const PARTS: readonly PartName[] = ['a', 'b', 'c'];

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string', default: '10' },
      short: { type: 'boolean', default: false },
      only: { type: 'string', default: PARTS.join(',') },
      report: { type: 'boolean', default: false },
      seed: { type: 'string', default: '1' },
      out: { type: 'string', default: RESULT },
    },
  });
  const parts = PARTS.filter((part) => values.only.split(',').includes(part));
  const form = values.short ? shortForm() : longForm(Number(values.minutes));
  const facts = machine();
  const log = (line: string) => console.error(`${new Date().toISOString().slice(11, 19)} ${line}`);
  const result = await chaos({ ...form, parts, seed: Number(values.seed), log });
  const found = findings(result);
  for (const { what, seen, required, met } of found)
    console.log(`${met ? 'ok    ' : 'MISSED'} ${what}: ${seen} (${required})`);
  const told = [
    ...(result.a?.problems ?? []),
    ...(result.a?.accounts.doublesWithinReach ?? []),
    ...(result.a?.accounts.leftBehind ?? []),
    ...(result.a?.accounts.generating ?? []),
    ...(result.a?.troubles ?? []),
    ...(result.c?.unexcused ?? []),
  ];
  for (const line of told) console.log(`       ${line}`);
  mkdirSync(dirname(values.out), { recursive: true });
  const text = JSON.stringify({ machine: facts, ...result, findings: found }, undefined, 1);
  writeFileSync(values.out, `${text}\n`);
  if (values.report) publish(resultSchema.parse(JSON.parse(text)));
  return found.every(({ met }) => met) ? 0 : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(error);
  process.exitCode = 1;
} finally {
  console.error('ending all processes');
  await endAll();
}
