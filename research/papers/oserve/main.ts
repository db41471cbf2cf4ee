/**
 * `npm run --prefix research paper:oserve [-- --quick] [--json FILE] [--pictures DIR] [--section NAME] [--models WORDS]
 * [--threads N] [--fresh] [--trace FILE]`: recomputes each claim of OServe. `--trace`: the section `day` replays this
 * trace of Azure, Mooncake, BurstGPT or a gateway instead of ServeGen's.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { missesText, rowsText } from '../rows.ts';
import { boundClaims } from './bound-claims.ts';
import { boundSchema, boundsOf } from './bound-runs.ts';
import { dayClaims } from './day-claims.ts';
import { dayRuns, daySchema } from './day-runs.ts';
import { KeptResults } from './kept-results.ts';
import { cellSchema, cellsOf } from './latency-cells.ts';
import { latencyClaims } from './latency-claims.ts';
import { PartPool } from './part-pool.ts';
import { SECTIONS } from './parts.ts';
import { saturationClaims } from './saturation-claims.ts';
import { saturatedRuns, saturatedSchema } from './saturation-runs.ts';
import { type Section, sectionSchema } from './section.ts';

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    json: { type: 'string' },
    pictures: { type: 'string', default: 'docs/pictures' },
    models: { type: 'string' },
    section: { type: 'string', multiple: true },
    trace: { type: 'string' },
    threads: { type: 'string', default: String(availableParallelism()) },
    fresh: { type: 'boolean', default: false },
  },
});
const { quick } = values;

const threads = Number(values.threads);
if (!Number.isInteger(threads) || threads < 1 || threads > 1_024) {
  process.stderr.write(`--threads: "${values.threads}" is no whole number from 1 to 1024\n`);
  process.exit(2);
}

const pool = new PartPool({
  threads,
  fresh: values.fresh,
  kept: new KeptResults(),
  tell: (line) => process.stderr.write(`${line}\n`),
});
const NAMES = [...SECTIONS, 'bound', 'day', 'saturation', 'latency'];
const unknown = values.section?.find((name) => !NAMES.includes(name));
if (unknown !== undefined) {
  process.stderr.write(`--section: there is no section "${unknown}"; there are ${NAMES.join(', ')}\n`);
  process.exit(2);
}
const wanted = (name: string) => values.section === undefined || values.section.includes(name);
const sections: Promise<Section>[] = SECTIONS.filter(wanted).map((section) =>
  pool.compute({ section, quick }, sectionSchema),
);
if (wanted('bound')) {
  const bounds = Promise.all(boundsOf(quick).map((bound) => pool.compute({ bound }, boundSchema)));
  sections.push(bounds.then(boundClaims));
}
if (wanted('day')) {
  const days = Promise.all(dayRuns(quick, values.trace).map((day) => pool.compute({ day }, daySchema)));
  sections.push(days.then(dayClaims));
}
if (wanted('saturation')) {
  const all = Promise.all(saturatedRuns(quick).map((one) => pool.compute({ saturated: one }, saturatedSchema)));
  sections.push(all.then(saturationClaims));
}
const runs = wanted('latency') ? cellsOf({ quick, only: values.models }) : [];
const cells = Promise.all(runs.map((run) => pool.compute({ run }, cellSchema)));
if (runs.length > 0)
  sections.push(cells.then((all) => latencyClaims(all, all.length === cellsOf({ quick: false }).length)));
const [found] = await Promise.all([Promise.all(sections), pool.run()]);

for (const { title, rows, text, verdicts } of found) {
  console.log(`## ${title}\n\n${rowsText(rows)}\n`);
  if (text !== undefined) console.log(`${text}\n`);
  for (const { claim, verdict, reason } of verdicts) console.log(`${verdict}: ${claim}. ${reason}\n`);
}
const rows = found.flatMap((section) => section.rows);
console.log(missesText(rows));
if (values.json !== undefined) {
  const verdicts = found.flatMap((section) => section.verdicts);
  writeFileSync(values.json, `${JSON.stringify({ rows, verdicts, runs: await cells }, null, 2)}\n`);
}
if (!quick) {
  mkdirSync(values.pictures, { recursive: true });
  for (const [name, svg] of found.flatMap((section) => section.pictures ?? [])) {
    writeFileSync(`${values.pictures}/${name}.svg`, svg);
    console.log(`wrote ${values.pictures}/${name}.svg`);
  }
}
process.exitCode = rows.every(({ holds }) => holds) ? 0 : 1;
