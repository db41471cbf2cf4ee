/** `npm run paper:oserve [-- --quick] [--json FILE] [--pictures DIR] [--section NAME] [--models WORDS] [--cells FILE]`: the claims of OServe, each computed again. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { rowsText } from '../rows.ts';
import { ablationClaims } from './ablation-claims.ts';
import { appendixD } from './assignment-claims.ts';
import { forecastClaims } from './forecast-claims.ts';
import { cells } from './latency-cells.ts';
import { latencyClaims } from './latency-claims.ts';
import { searchClaims } from './search-claims.ts';
import type { Section } from './section.ts';
import { switchClaims } from './switch-claims.ts';

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    json: { type: 'string' },
    pictures: { type: 'string', default: 'docs/pictures' },
    models: { type: 'string' },
    cells: { type: 'string' },
    section: { type: 'string', multiple: true },
  },
});

const SECTIONS: Record<string, () => Promise<Section> | Section> = {
  assignment: appendixD,
  search: () => searchClaims(values),
  forecast: () => forecastClaims(values),
  switch: () => switchClaims(values),
  ablation: () => ablationClaims(values),
  latency: () =>
    latencyClaims(
      cells({
        quick: values.quick,
        ...(values.models === undefined ? {} : { models: values.models }),
        ...(values.cells === undefined ? {} : { file: values.cells }),
      }),
    ),
};

const found: Section[] = [];
for (const [name, run] of Object.entries(SECTIONS)) {
  if (values.section !== undefined && !values.section.includes(name)) continue;
  const startedAt = performance.now();
  const section = await run();
  found.push(section);
  console.log(
    `## ${section.title} (${((performance.now() - startedAt) / 1e3).toFixed(1)} s)\n\n${rowsText(section.rows)}\n`,
  );
  if (section.text !== undefined) console.log(`${section.text}\n`);
  for (const { claim, verdict, reason } of section.verdicts) console.log(`${verdict}: ${claim}. ${reason}\n`);
}
const rows = found.flatMap((section) => section.rows);
if (values.json !== undefined) {
  const verdicts = found.flatMap((section) => section.verdicts);
  writeFileSync(values.json, `${JSON.stringify({ rows, verdicts }, null, 2)}\n`);
}
if (!values.quick) {
  mkdirSync(values.pictures, { recursive: true });
  for (const [name, svg] of found.flatMap((section) => section.pictures ?? [])) {
    writeFileSync(`${values.pictures}/${name}.svg`, svg);
    console.log(`wrote ${values.pictures}/${name}.svg`);
  }
}
process.exitCode = rows.every(({ holds }) => holds) ? 0 : 1;
