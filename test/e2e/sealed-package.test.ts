/**
 * `@opentela/seal` as users install it: packed, installed in an empty directory, and used there without this clone. It
 * runs in the Node of this clone, in the machine's own Node if the package supports it, and in the versions of Node
 * that `OTELA_TEST_NODES` names, separated by `:`.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import * as z from 'zod';
import { endAll, Managed, temporaryDirectory } from '../support/processes.ts';
import { providerRoot } from '../support/provider-root.ts';
import { MODEL, openTestCluster } from '../support/test-cluster.ts';
import { NODE, ROOT } from '../support/where.ts';

afterAll(endAll);

/** Older versions of Node have another OpenSSL, and can decrypt only with WebCrypto. */
const OLDEST_MAJOR = 20;
const others = ['/usr/bin/node', ...(process.env.OTELA_TEST_NODES?.split(':') ?? [])].filter((program) => {
  const { stdout } = spawnSync(program, ['--version'], { encoding: 'utf8' });
  const promised = Number(/^v(\d+)/.exec(stdout ?? '')?.[1] ?? 0) >= OLDEST_MAJOR;
  if (!promised) console.log(`${program} is no Node that @opentela/seal promises to run on: left out`);
  return promised;
});

const packedSchema = z.array(z.object({ filename: z.string(), files: z.array(z.object({ path: z.string() })) })).min(1);

it('brings one dependency, its types, and seals', async ({ skip }) => {
  execFileSync(NODE, [join(ROOT, 'build.ts'), 'commands'], { cwd: ROOT, stdio: 'pipe' });
  const directory = await temporaryDirectory('otela-seal-package');
  const pack = ['pack', join(ROOT, 'dist/opentela-seal'), '--json', '--pack-destination', directory];
  const [packed] = packedSchema.parse(JSON.parse(execFileSync('npm', pack, { cwd: directory, encoding: 'utf8' })));
  const paths = packed?.files.map(({ path }) => path).sort();
  expect(paths).toEqual(['README.md', 'index.d.ts', 'index.js', 'package.json']);
  const install = ['install', '--prefer-offline', '--no-audit', '--no-fund', join(directory, packed?.filename ?? '')];
  const installed = spawnSync('npm', install, { cwd: directory, encoding: 'utf8' });
  if (installed.status !== 0) return skip(`npm cannot install hpke here: ${installed.stderr.slice(-300)}`);
  const names = readdirSync(join(directory, 'node_modules')).filter((name) => !name.startsWith('.'));
  expect(names.sort()).toEqual(['@opentela', 'hpke']);

  const root = await providerRoot('lab');
  const cluster = await openTestCluster({ agentArgs: ['--delegate-file', root.delegateFile] });
  const script = `import { sealedFetch } from '@opentela/seal';
const [base, key, model, pin] = process.argv.slice(2);
const answer = await sealedFetch({ pins: { lab: pin } })(base + '/chat/completions', {
  method: 'POST', headers: { authorization: 'Bearer ' + key }, body: JSON.stringify({ model, messages: [{ role: 'user', content: 'x' }], stream: true }) });
const text = await answer.text();
console.log(answer.status, answer.headers.get('x-otela-sealed'), text.trim().endsWith('data: [DONE]'));`;
  await writeFile(join(directory, 'use.mjs'), script);
  for (const program of [NODE, ...others]) {
    const flags = ['--no-warnings', 'use.mjs', cluster.base, cluster.key, MODEL, root.pin];
    const run = new Managed([program, ...flags], { cwd: directory });
    await run.end(20_000);
    expect([program, run.output.trim()]).toEqual([program, '200 pinned true']);
  }
});
