/**
 * `npm run paper:torta [-- --quick] [--json FILE] [--pictures DIR] [--topology ID,…] [--seeds N]`: the experiments of TORTA (arXiv 2507.10259),
 * simulated. Exit code 1 where a row leaves its band.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { loadCatalogue } from '../../catalogue/catalogue.ts';
import { PAPER_SLOTS } from '../../regions/simulator/workload.ts';
import { TOPOLOGY_IDS } from '../../regions/world/topology.ts';
import { type Row, rowsText } from '../rows.ts';
import { type Compared, compare, comparisonRows, comparisonTable } from './comparison.ts';
import { pictures } from './pictures.ts';

/** An hour and a half: enough for the bands, short enough for every change. */
const QUICK_SLOTS = 120;

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    json: { type: 'string' },
    pictures: { type: 'string' },
    topology: { type: 'string', default: TOPOLOGY_IDS.join() },
    seeds: { type: 'string' },
  },
});

const catalogue = loadCatalogue();
const slots = values.quick ? QUICK_SLOTS : PAPER_SLOTS;
const seeds = Array.from({ length: Number(values.seeds ?? (values.quick ? 2 : 10)) }, (_, i) => i + 1);
const rows: Row[] = [];
const found: Compared[] = [];
for (const topology of values.topology.split(',')) {
  const compared = await compare(catalogue, topology, seeds, slots);
  found.push(compared);
  rows.push(...comparisonRows(compared));
  console.log(`\n${topology}: ${slots} slots of 45 s, ${seeds.length} seeds, mean ± 95 % interval\n`);
  console.log(comparisonTable(compared));
}
console.log(`\n${rowsText(rows)}`);
if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(rows, null, 2)}\n`);
if (values.pictures !== undefined) {
  mkdirSync(values.pictures, { recursive: true });
  for (const [name, svg] of pictures(found)) {
    writeFileSync(`${values.pictures}/${name}.svg`, svg);
    console.log(`wrote ${values.pictures}/${name}.svg`);
  }
}
process.exitCode = rows.every(({ holds }) => holds) ? 0 : 1;
