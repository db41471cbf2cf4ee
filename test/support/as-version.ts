/** Builds this clone's programs as single files that report another version, for tests of upgrades. */
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type BuildOptions, build, type Plugin } from 'esbuild';
import { readMigrations } from '../../gateway/hosts/node/serve/program-files.ts';
import manifest from '../../package.json' with { type: 'json' };
import { REQUIRE_BANNER } from './require-banner.ts';
import { ROOT } from './where.ts';

const COMMON = {
  bundle: true,
  write: false,
  logLevel: 'error',
  platform: 'node',
  target: 'node24',
} satisfies BuildOptions;

const versioned = (version: string, root: string): Plugin => ({
  name: 'version',
  setup: ({ onLoad }) =>
    onLoad({ filter: /^.*[/\\]package\.json$/ }, ({ path }) =>
      path === join(root, 'package.json')
        ? { contents: JSON.stringify({ ...manifest, version }), loader: 'json' }
        : undefined,
    ),
});

async function bundled(entry: string, more: BuildOptions, root = ROOT): Promise<string> {
  const options = { ...COMMON, absWorkingDir: root, ...more, write: false, entryPoints: [entry] };
  const { outputFiles = [] } = await build(options);
  return outputFiles[0]?.text.replace(/^#!.*\n/, '') ?? '';
}

const ESM: BuildOptions = {
  format: 'esm',
  banner: { js: REQUIRE_BANNER },
};

/** Writes `file` atomically, as an installation does: a process that runs the previous file is not disturbed. */
async function install(file: string, text: string): Promise<void> {
  await mkdir(dirname(file), { recursive: true });
  await writeFile(`${file}.new`, text);
  await rename(`${file}.new`, file);
}

/** Migrations of accounts in PostgreSQL. */
const POSTGRES_MIGRATIONS = 'gateway/hosts/node/postgresql/migrations';

export async function installAgent(file: string, version: string): Promise<void> {
  await install(file, await bundled('agent/cli/main.ts', { ...ESM, plugins: [versioned(version, ROOT)] }));
}

/** Installs a gateway as `file`, which is DIR/dist/NAME.js, with its other files except the page. `root`: the clone. */
export async function installGateway(file: string, version: string, root = ROOT): Promise<void> {
  const worker = await bundled('gateway/hosts/node/reports/report-worker.ts', { format: 'cjs' }, root);
  const define = { OTELA_REPORT_WORKER: JSON.stringify(worker) };
  await install(
    join(dirname(file), 'gateway.json'),
    JSON.stringify({
      migrations: await readMigrations(join(root, 'migrations')),
      postgresMigrations: await readMigrations(join(root, POSTGRES_MIGRATIONS)),
    }),
  );
  const plugins = [versioned(version, root)];
  await install(file, await bundled('gateway/cli/main.ts', { ...ESM, define, plugins }, root));
}
