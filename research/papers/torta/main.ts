/**
 * `npm run --prefix research paper:torta [-- --quick] [--json FILE] [--pictures DIR] [--only PART,…] [--topology ID,…]
 * [--seeds N] [--keep DIR]`: simulates the experiments of TORTA (arXiv 2507.10259), and prints its tables and figures
 * in its order: paper, ours, band, verdict. Exit code 1 if a row leaves its band and `misses.ts` does not list it with
 * a reason. `--keep`: a folder for the result of each run; started again, the command simulates only missing runs.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { loadCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import { SchedulerError } from '../../../scheduler/errors.ts';
import { PAPER_SLOTS } from '../../regions/simulator/workload.ts';
import { KEPT_BACK_IDS, TOPOLOGY_IDS } from '../../regions/world/topology.ts';
import { missesText, type Row, rowsText } from '../rows.ts';
import { ablate, ablationTable, scoreRows, transportRow } from './ablation.ts';
import { inPaperOrder } from './claims.ts';
import { compare, comparisonTable } from './comparison.ts';
import { Simulations } from './experiment.ts';
import { comparisonRows, setUpRows } from './figures.ts';
import { forecasterRows } from './forecasters.ts';
import { guaranteeRows } from './guarantee-rows.ts';
import { KeptRuns } from './kept-runs.ts';
import { learning } from './learning.ts';
import { timingRows, timings } from './milp.ts';
import { accuracyPicture, balancePicture, comparisonPicture, coursePicture, responsePicture } from './pictures.ts';
import { accuracySweep, failure, surge } from './scenarios.ts';

/** An hour and a half: enough for the bands, short enough for every change. */
const QUICK_SLOTS = 120;
const PARTS = [
  'set-up',
  'surge',
  'failure',
  'milp',
  'comparison',
  'kept-back',
  'accuracy',
  'guarantee',
  'learning',
  'ablation',
  'forecasters',
] as const;
type Part = (typeof PARTS)[number];

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    json: { type: 'string' },
    pictures: { type: 'string' },
    only: { type: 'string', default: PARTS.join() },
    topology: { type: 'string', default: TOPOLOGY_IDS.join() },
    seeds: { type: 'string' },
    keep: { type: 'string' },
  },
});

const catalogue = loadCatalogue();
const simulations = new Simulations(catalogue, new KeptRuns(values.keep));
const { quick } = values;
const slots = quick ? QUICK_SLOTS : PAPER_SLOTS;
const seeds = Array.from({ length: Number(values.seeds ?? (quick ? 2 : 10)) }, (_, i) => i + 1);
/** Kept back as the topologies are: no choice or training used these seeds. */
const keptBackSeeds = seeds.map((seed) => 1_000 + seed);
const rows: Row[] = [];
const pictures: [name: string, svg: string][] = [];

const run: Record<Part, () => Promise<void>> = {
  async 'set-up'() {
    rows.push(...setUpRows(catalogue));
  },
  async comparison() {
    for (const topology of values.topology.split(',')) {
      const compared = await compare(simulations, topology, seeds, slots);
      pictures.push(comparisonPicture(compared), responsePicture(compared), balancePicture(compared));
      rows.push(...comparisonRows(compared));
      console.log(`\n${topology}: ${slots} slots of 45 s, ${seeds.length} seeds, mean ± 95 % interval\n`);
      console.log(comparisonTable(compared));
    }
  },
  async 'kept-back'() {
    for (const topology of KEPT_BACK_IDS) {
      const compared = await compare(simulations, topology, keptBackSeeds, slots);
      rows.push(...comparisonRows(compared));
      console.log(`\n${topology}, kept back: ${slots} slots, ${keptBackSeeds.length} seeds, mean ± 95 % interval\n`);
      console.log(comparisonTable(compared));
    }
  },
  async ablation() {
    const [topology = 'abilene'] = values.topology.split(',');
    const runs = await ablate(simulations, topology, seeds, slots);
    rows.push(...scoreRows(topology, runs), transportRow(topology, runs));
    console.log(`\nablation, ${topology}\n\n${ablationTable(runs)}`);
  },
  async surge() {
    const found = await surge(simulations, seeds);
    rows.push(...found.rows);
    const runs = new Map([
      ['reactive', found.reactive],
      ['foresight of 15 minutes', found.foresight],
    ]);
    pictures.push(['regions-surge', coursePicture('Response in a surge (slots 60 to 79)', runs)]);
  },
  async failure() {
    const found = await failure(simulations, seeds);
    rows.push(...found.rows);
    pictures.push(['regions-failure', coursePicture('Response while a region is gone (slots 40 to 79)', found.runs)]);
  },
  async accuracy() {
    const found = await accuracySweep(simulations, seeds, slots);
    rows.push(...found.rows);
    pictures.push(['regions-accuracy', accuracyPicture(found.points, found.baselineS)]);
  },
  async forecasters() {
    rows.push(...(await forecasterRows(simulations, seeds.slice(0, 3), slots, quick)));
  },
  async learning() {
    const own = values.topology.split(',').map((id) => ({ id, seeds }));
    const keptBack = KEPT_BACK_IDS.map((id) => ({ id, seeds: keptBackSeeds }));
    const found = await learning(simulations, [...own, ...keptBack], slots);
    rows.push(...found.rows);
    console.log(`\n${found.text}`);
  },
  async guarantee() {
    rows.push(...(await guaranteeRows(simulations)));
  },
  async milp() {
    const [sizes, limitS] = quick ? [[100, 200], 5] : [[100, 500, 1000, 2000, 5000], 40];
    // Not kept: these times are of this machine.
    rows.push(...timingRows(await timings(sizes, limitS)));
  },
};

for (const name of values.only.split(',')) {
  const part = PARTS.find((one) => one === name);
  if (part === undefined) throw new SchedulerError('usage', `no part is called ${name}; there are ${PARTS.join(', ')}`);
  await run[part]();
}
const ordered = inPaperOrder(rows);
console.log(`\n${rowsText(ordered)}\n\n${missesText(ordered)}`);
if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(ordered, null, 2)}\n`);
if (values.pictures !== undefined) {
  mkdirSync(values.pictures, { recursive: true });
  for (const [name, svg] of pictures) {
    writeFileSync(`${values.pictures}/${name}.svg`, svg);
    console.log(`wrote ${values.pictures}/${name}.svg`);
  }
}
process.exitCode = rows.every(({ holds }) => holds) ? 0 : 1;
