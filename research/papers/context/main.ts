/**
 * `npm run --prefix research paper:context [-- --quick] [--json FILE] [--pictures DIR]`: simulates the runs pv0 to pv6
 * of arXiv 2509.13201.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { rowsText } from '../rows.ts';
import { evictionRows, oursRows, siteRows, taskRows, timeRows, times, workerRows } from './claims.ts';
import { pictures } from './pictures.ts';

const { values } = parseArgs({
  options: {
    json: { type: 'string' },
    pictures: { type: 'string', default: 'docs/pictures' },
    quick: { type: 'boolean', default: false },
  },
});

const found = times();
const rows = [...timeRows(found), ...evictionRows(), ...siteRows(), ...workerRows(), ...taskRows()];
const ours = oursRows(found);
console.log(`Medians of 7 seeds against the paper's single runs.\n\n${rowsText(rows)}\n`);
console.log(
  `With continuous batching and commits by line ("paper": our simulation of the paper's system)\n\n${rowsText(ours)}`,
);
if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify([...rows, ...ours], null, 2)}\n`);
if (!values.quick) {
  mkdirSync(values.pictures, { recursive: true });
  for (const [name, svg] of pictures(found)) {
    writeFileSync(`${values.pictures}/${name}.svg`, svg);
    console.log(`wrote ${values.pictures}/${name}.svg`);
  }
}
process.exitCode = [...rows, ...ours].every(({ holds }) => holds) ? 0 : 1;
