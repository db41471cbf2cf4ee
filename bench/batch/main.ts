/**
 * `npm run bench:batch [-- upload instant paced lost latency] [--lines N] [--rounds N]`: the cost of batches, each
 * figure next to its reference, measured alternately in one run with mock engines. Exit code 1 if a figure is outside
 * its band. `--slurm` runs ../batch-slurm.ts instead.
 */
import { parseArgs } from 'node:util';
import { endAll } from '../../test/support/processes.ts';
import { slurmBench } from '../batch-slurm.ts';
import { instant } from './instant.ts';
import { latency } from './latency.ts';
import { lost } from './lost.ts';
import { paced } from './paced.ts';
import { uploads } from './uploads.ts';

/** One line of the table. `holds` is undefined if the figure has no required band. */
export interface Row {
  what: string;
  value: string;
  required?: string;
  holds?: boolean;
}

export interface Options {
  lines: number;
  rounds: number;
}

const PARTS: Readonly<Record<string, { lines: number; run(options: Options): Promise<Row[]> }>> = {
  upload: { lines: 50_000, run: uploads },
  instant: { lines: 50_000, run: instant },
  paced: { lines: 50_000, run: paced },
  lost: { lines: 6_000, run: lost },
  latency: { lines: 20_000, run: latency },
};

const { values, positionals } = parseArgs({
  options: {
    lines: { type: 'string' },
    rounds: { type: 'string', default: '3' },
    slurm: { type: 'boolean', default: false },
  },
  allowPositionals: true,
});
if (values.slurm) process.exit(await slurmBench());
const unknown = positionals.find((name) => !Object.hasOwn(PARTS, name));
if (unknown !== undefined) {
  console.error(`no part "${unknown}"; there are ${Object.keys(PARTS).join(', ')}`);
  process.exit(2);
}
let missed = false;
console.log('| part | what | figure | required | |\n| --- | --- | --- | --- | --- |');
for (const [name, part] of Object.entries(PARTS)) {
  if (positionals.length > 0 && !positionals.includes(name)) continue;
  const rows = await part.run({ lines: Number(values.lines ?? part.lines), rounds: Number(values.rounds) });
  for (const { what, value, required = '', holds } of rows) {
    missed ||= holds === false;
    console.log(
      `| ${name} | ${what} | ${value} | ${required} | ${holds === undefined ? '' : holds ? 'holds' : 'MISSED'} |`,
    );
  }
  await endAll();
}
process.exit(missed ? 1 : 0);
