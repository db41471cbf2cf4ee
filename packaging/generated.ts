/**
 * `npm run lint:generated` checks that each generated file of the repository equals the current output of its
 * generator. Otherwise the reference and the Grafana dashboards would describe another version.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { overviewJson } from '../deploy/grafana/overview.ts';
import { referencePages } from './reference/main.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8');

/** Stale files, each with the command that writes it. */
async function stale(): Promise<string[]> {
  const pages = await referencePages();
  const reference = new Set([...pages.keys(), ...readdirSync(join(ROOT, 'docs/reference'))]);
  const found: [file: string, fresh: boolean, command: string][] = [
    ['deploy/grafana/otela.json', read('deploy/grafana/otela.json') === overviewJson(), 'dashboard:generate'],
    ...[...reference].map((name): [string, boolean, string] => {
      const page = `docs/reference/${name}`;
      return [page, pages.has(name) && read(page) === pages.get(name), 'docs:reference'];
    }),
  ];
  return found.filter(([, fresh]) => !fresh).map(([file, , command]) => `${file} is stale: npm run ${command}`);
}

const lines = await stale();
for (const line of lines) console.error(line);
if (lines.length > 0) process.exitCode = 1;
