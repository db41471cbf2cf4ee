/**
 * `npm run chaos`: sixteen agents, faults, clients. `-- --minutes 10` is the length of (A); `--short` is the form of
 * `npm run test:all`; `--only a,c` runs some parts, `--keep` together with the results of the previous run. Prints the
 * findings and writes everything to bench/results/chaos.json, with `--report` also to bench/results/chaos.md; exit code
 * 1 if one is missed.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { parseArgs } from 'node:util';
import { watchMachine } from '../../bench/machine.ts';
import { endAll } from '../support/processes.ts';
import { chaos, findings, longForm, type PartName, shortForm } from './chaos.ts';
import { publish, RESULT } from './report.ts';
import { type Run, resultSchema } from './result.ts';

const PARTS: readonly PartName[] = ['a', 'b', 'c'];

/** Parts that this run does not have are kept. */
function merged(run: Run, before: Run): Run {
  const again = new Set(PARTS.filter((part) => run[part] !== undefined).map((part) => part.toUpperCase()));
  const kept = before.findings.filter(({ what }) => !again.has(what.slice(0, 1)));
  const findings = [...kept, ...run.findings].sort((one, other) => one.what.charCodeAt(0) - other.what.charCodeAt(0));
  return { ...before, ...run, measured: { ...before.measured, ...run.measured }, findings };
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string', default: '10' },
      short: { type: 'boolean', default: false },
      only: { type: 'string', default: PARTS.join(',') },
      /** Tokens per second of each response: fewer for a machine with other work. */
      rate: { type: 'string' },
      'step-seconds': { type: 'string' },
      keep: { type: 'boolean', default: false },
      report: { type: 'boolean', default: false },
      seed: { type: 'string', default: '1' },
      out: { type: 'string', default: RESULT },
    },
  });
  const parts = PARTS.filter((part) => values.only.split(',').includes(part));
  const form = values.short ? shortForm() : longForm(Number(values.minutes));
  if (values.rate !== undefined) form.tokensPerSecond = Number(values.rate);
  if (values['step-seconds'] !== undefined) form.b.secondsPerStep = Number(values['step-seconds']);
  const measuredOn = watchMachine();
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
    ...(result.b?.problems ?? []),
    ...(result.c?.unexcused ?? []),
  ];
  for (const line of told) console.log(`       ${line}`);
  mkdirSync(dirname(values.out), { recursive: true });
  const facts = measuredOn();
  const measured = Object.fromEntries(parts.map((part) => [part, facts]));
  const run: Run = resultSchema.parse(JSON.parse(JSON.stringify({ measured, ...result, findings: found })));
  const whole = values.keep ? merged(run, resultSchema.parse(JSON.parse(readFileSync(values.out, 'utf8')))) : run;
  writeFileSync(values.out, `${JSON.stringify(whole, undefined, 1)}\n`);
  if (values.report) publish(whole);
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
