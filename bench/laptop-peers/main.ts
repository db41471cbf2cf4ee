/**
 * `npm run bench:laptop-peers`: a first token on the laptop from an engine in a Slurm job, by the usual script, by vec-inf
 * (`VEC_INF=…` is its program) and by `otela up`, alternately: seconds and commands. Needs
 * root, sshd, Slurm, jq and netcat-openbsd.
 */
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { endAll, freePorts } from '../../test/support/processes.ts';
import { repeated } from '../stats.ts';
import { Lab } from './lab.ts';
import { OTELA_UP } from './otela-up.ts';
import { USUAL_SCRIPT } from './usual-script.ts';
import { vecInf } from './vec-inf.ts';
import type { Way } from './way.ts';

/** Seconds until the first token. */
async function measured(lab: Lab, way: Way): Promise<number> {
  await lab.emptyQueue();
  const port = await freePorts(2);
  const from = performance.now();
  const script = lab.script(way.name, way.script(port));
  await script.line(/first token/, 120_000);
  const seconds = (performance.now() - from) / 1_000;
  const { code } = await script.end(60_000);
  if (code !== 0) throw script.failure(`ended with ${code}`);
  return seconds;
}

function row({ name, once, each, end }: Way, seconds: readonly number[]): string {
  const { median, least, most } = repeated(seconds);
  const counts = [once, each, end].map((commands) => String(commands.length));
  return `| ${[name, ...counts, ...[median, least, most].map((one) => one.toFixed(1))].join(' | ')} |`;
}

const { VEC_INF } = process.env;
const { values } = parseArgs({ options: { turns: { type: 'string', default: '5' } } });
const ways = [USUAL_SCRIPT, ...(VEC_INF === undefined ? [] : [vecInf(VEC_INF)]), OTELA_UP];
const found = new Map<Way, number[]>(ways.map((way) => [way, []]));
try {
  const lab = await Lab.open();
  for (const way of ways) {
    await way.prepare(lab);
    console.error(`${way.name}: first run, not counted: ${(await measured(lab, way)).toFixed(1)} s`);
  }
  for (let turn = 0; turn < Number(values.turns); turn++)
    for (const [way, seconds] of found) seconds.push(await measured(lab, way));
  const load = readFileSync('/proc/loadavg', 'utf8').split(' ')[0];
  console.log(
    `Commands of a person, and seconds from the first one to the first token; load of this machine ${load}\n`,
  );
  console.log('| way | once | each model | at its end | median | least | most |');
  console.log('| --- | ---: | ---: | ---: | ---: | ---: | ---: |');
  for (const [way, seconds] of found) console.log(row(way, seconds));
  for (const { name, once, each, end } of ways)
    console.log(`\n${name}: ${once.join('; ') || '-'} | ${each.join('; ')} | ${end.join('; ')}`);
} finally {
  await endAll();
}
