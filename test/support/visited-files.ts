/**
 * `npm run figures:chat [-- --list]` counts the product files of which a function runs for one streamed chat request,
 * from the gateway's socket to the engine and back, by V8's coverage. A file counts if it ran for each of several
 * requests, because timers run beside them. The gateway and the agent load record-files.ts first, which writes
 * what ran.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import { endAll, eventually, temporaryDirectory } from './processes.ts';
import { chatBody, openTestCluster } from './test-cluster.ts';
import { ROOT } from './where.ts';

const REQUESTS = 8;
const FOLDERS = ['agent', 'gateway', 'node', 'shared'];
const Files = z.array(z.string());

/** Files that ran in each process since the last call. */
async function take(directory: string, round: number, processes: number): Promise<Set<string>> {
  writeFileSync(join(directory, `take-${round}`), '');
  const written = await eventually('the coverage', 10_000, () => {
    const found = readdirSync(directory).filter((name) => name.startsWith(`${round}-`) && name.endsWith('.json'));
    return found.length >= processes ? found : undefined;
  });
  const urls = written.flatMap((name) => Files.parse(JSON.parse(readFileSync(join(directory, name), 'utf8'))));
  const files = urls.filter((url) => url.startsWith('file:')).map((url) => relative(ROOT, fileURLToPath(url)));
  return new Set(files.filter((file) => FOLDERS.includes(file.split('/')[0] ?? '')));
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { list: { type: 'boolean', default: false } } });
  const directory = await temporaryDirectory('otela-visited');
  const env = { NODE_OPTIONS: `--import ${join(ROOT, 'test/support/record-files.ts')}`, OTELA_VISITED: directory };
  const cluster = await openTestCluster({ gateway: { env }, agentEnv: env });
  const ask = async () => {
    const answer = await cluster.ask('/v1/chat/completions', chatBody({}, { stream: true }));
    await answer.text();
  };
  for (let n = 0; n < 3; n++) await ask();
  const rounds: Set<string>[] = [];
  for (let n = 0; n <= REQUESTS; n++) {
    rounds.push(await take(directory, n, 2));
    await ask();
  }
  const [, first = new Set<string>(), ...others] = rounds;
  const always = [...first].filter((file) => others.every((ran) => ran.has(file))).toSorted();
  console.log(`product files that run for a chat request: ${always.length}`);
  if (values.list) for (const file of always) console.log(`  ${file}`);
  await endAll();
}

await main();
