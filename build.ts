/**
 * `node build.ts` makes dist/: the gateway's additional files, the dashboard, and the command lines as single files.
 * `node build.ts dashboard` makes only the page; with `--if-stale` only if a source is newer than it.
 */
import { cp, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip as gzipCompress } from 'node:zlib';
import { type BuildOptions, build, type Plugin } from 'esbuild';
import type { Plugin as VitePlugin } from 'vite';
import { pageIsStale, readAllMigrations } from './gateway/hosts/node/serve/program-files.ts';
import { YOUNG_GENERATION_FLAG } from './gateway/hosts/node/serve/young-generation.ts';

const ROOT = fileURLToPath(new URL('.', import.meta.url));
const DIST = join(ROOT, 'dist');

const COMMON = {
  absWorkingDir: ROOT,
  bundle: true,
  format: 'esm',
  write: false,
  logLevel: 'warning',
  // Comments and white space are a third of a program. Names stay, for stack traces.
  minifyWhitespace: true,
  // An uncaught error prints its line of the program.
  lineLimit: 200,
} satisfies BuildOptions;

/**
 * npm only warns of an old Node. Without this check an older Node, which does not know import.meta.main, would exit
 * silently without doing anything.
 */
const REFUSE_OLD_NODE = `if (Number(process.versions.node.split('.')[0]) < 24) {
  console.error('this needs Node 24 or later, and is run by ' + process.version + '.\\nGet it from https://nodejs.org/en/download; without root rights, unpack it and put its bin directory first on the PATH.');
  process.exit(2);
}`;

/**
 * Loads builtin modules at run time instead of importing them. Node 16 to 22 lack some modules and exports, and would
 * fail before the banner's message, because imports are linked before any code runs. An import of `node:http` also
 * reads all its exports, which loads Node's own undici: a third of the CPU time of an agent's start.
 */
const BUILTINS_LATE: Plugin = {
  name: 'builtins-late',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^node:(sqlite|sea|http|crypto|fs|fs\/promises|os)$/ }, ({ path }) => ({
      path,
      namespace: 'late',
    }));
    onLoad({ filter: /.*/, namespace: 'late' }, ({ path }) => ({
      contents: `module.exports = process.getBuiltinModule('${path}')`,
    }));
  },
};

const COMMAND = {
  ...COMMON,
  platform: 'node',
  plugins: [BUILTINS_LATE],
  target: 'node24',
  // `highs` has a WebAssembly file, which only its own package finds.
  external: ['highs'],
  // CommonJS dependencies call require(), which an ES module does not have.
  banner: {
    js: `import { createRequire as otelaRequire } from 'node:module';
const require = otelaRequire(import.meta.url);
${REFUSE_OLD_NODE}`,
  },
} satisfies BuildOptions;

/**
 * The agent for a single executable: Node runs such code as CommonJS, and the file that it runs from is the program
 * itself.
 */
const SINGLE = {
  ...COMMON,
  format: 'cjs',
  platform: 'node',
  target: 'node24',
  define: { 'import.meta.main': 'true', 'import.meta.url': 'otelaProgram' },
  banner: { js: "const otelaProgram = require('node:url').pathToFileURL(process.execPath).href;" },
} satisfies BuildOptions;

/** Directories below node_modules/ of the packages that contain these files. */
function packagesOf(files: Iterable<string>): string[] {
  const found = [...files].map(
    (file) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(relative(ROOT, resolve(ROOT, file)))?.[0],
  );
  return found.filter((one) => one !== undefined);
}

/** Records which packages a bundle contains, for the list of parts of a release. */
async function recordPackages(part: string, packages: Iterable<string>): Promise<void> {
  await mkdir(join(DIST, 'packages'), { recursive: true });
  await replace(join(DIST, 'packages', `${part}.json`), JSON.stringify([...new Set(packages)].toSorted(), null, 1));
}

const bundled = new Set<string>();

async function bundle(options: BuildOptions & { write: false }, entry: string): Promise<string> {
  const { outputFiles, metafile } = await build({ ...options, entryPoints: [entry], metafile: true });
  for (const name of packagesOf(Object.keys(metafile.inputs))) bundled.add(name);
  const [file] = outputFiles;
  if (file === undefined) throw new Error(`esbuild made no file from ${entry}`);
  return file.text;
}

/** Two gateways of one clone may build concurrently, and one may start while the other writes. */
async function replace(file: string, text: string, mode = 0o644): Promise<void> {
  const unfinished = `${file}.${process.pid}`;
  await writeFile(unfinished, text, { mode });
  await rename(unfinished, file);
}

async function buildGateway(): Promise<void> {
  await mkdir(DIST, { recursive: true });
  await replace(join(DIST, 'gateway.json'), JSON.stringify(await readAllMigrations()));
}

/** The code of the gateway's other threads, as text in the bundle, so that a program stays one file. */
async function threads(): Promise<Record<string, string>> {
  const options: BuildOptions & { write: false } = { ...COMMON, format: 'cjs', platform: 'node', target: 'node24' };
  return { OTELA_REPORT_WORKER: JSON.stringify(await bundle(options, 'gateway/hosts/node/reports/report-worker.ts')) };
}

async function buildCommands(): Promise<void> {
  await mkdir(DIST, { recursive: true });
  const commands = {
    'otela-gateway.js': 'gateway/cli/main.ts',
    'otela-agent.js': 'agent/cli/main.ts',
    'otela-plan.js': 'scheduler/cli/main.ts',
    'otela.js': 'clients/otela/main.ts',
    'otela-factory.js': 'factory/cli/main.ts',
    'otela-mock-engine.js': 'test/support/engine.ts',
  };
  for (const [name, entry] of Object.entries(commands)) {
    // An entry may have a first line (`#!`), which esbuild keeps; here each program gets exactly one.
    const options = name === 'otela-gateway.js' ? { ...COMMAND, define: await threads() } : COMMAND;
    const text = (await bundle(options, entry)).replace(/^#!.*\n/, '');
    const flags = name === 'otela-gateway.js' ? `-S node ${YOUNG_GENERATION_FLAG}` : 'node';
    await replace(join(DIST, name), `#!/usr/bin/env ${flags}\n${text}`, 0o755);
  }
  // Builds the client for sealed requests, for browsers, workerd and Node. HPKE stays a dependency, so that its package
  // can be audited separately.
  await mkdir(join(DIST, 'opentela-seal'), { recursive: true });
  const library: BuildOptions & { write: false } = {
    ...COMMON,
    platform: 'neutral',
    target: 'es2022',
    external: ['hpke'],
  };
  await replace(join(DIST, 'opentela-seal/index.js'), await bundle(library, 'clients/seal/index.ts'));
  await cp(join(ROOT, 'clients/seal/package.json'), join(DIST, 'opentela-seal/package.json'));
  await cp(join(ROOT, 'clients/seal/README.md'), join(DIST, 'opentela-seal/README.md'));
  await cp(join(ROOT, 'clients/seal/public.d.ts'), join(DIST, 'opentela-seal/index.d.ts'));
  await replace(join(DIST, 'otela-agent.cjs'), (await bundle(SINGLE, 'agent/cli/main.ts')).replace(/^#!.*\n/, ''));
  // The tables of otela-plan stay files, so that users can read and edit them.
  const [data, copy] = [join(ROOT, 'scheduler/data'), join(DIST, 'otela-plan-data')];
  await cp(data, copy, { recursive: true });
  // Tables of an earlier build, which a release would contain.
  const current = new Set(await readdir(data));
  for (const name of await readdir(copy)) if (!current.has(name)) await rm(join(copy, name), { recursive: true });
  await recordPackages('commands', bundled);
}

/** Writes a compressed copy next to each text file, because no runtime of the gateway compresses on the fly. */
async function compress(folder: string): Promise<void> {
  const [brotli, gzip] = [promisify(brotliCompress), promisify(gzipCompress)];
  const params = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY };
  const names = (await readdir(folder)).filter((one) => /\.(m?js|css|svg)$/.test(one));
  const one = async (name: string) => {
    const file = await readFile(join(folder, name));
    await writeFile(join(folder, `${name}.br`), await brotli(file, { params }));
    await writeFile(join(folder, `${name}.gz`), await gzip(file));
  };
  await Promise.all(names.map(one));
}

/** Builds the page in a separate directory first, because a gateway may be serving the old one. */
async function buildDashboard(): Promise<void> {
  // Set regardless of the shell or a test: otherwise Vite makes a development page, which is larger and contains paths
  // of this clone.
  process.env.NODE_ENV = 'production';
  const [{ build: bundlePage }, { default: tailwind }] = await Promise.all([
    import('vite'),
    import('@tailwindcss/vite'),
  ]);
  const unfinished = join(DIST, `dashboard.${process.pid}`);
  const recording: VitePlugin = {
    name: 'record-packages',
    async generateBundle(_, files) {
      const assets = Object.values(files).flatMap((file) => (file.type === 'asset' ? file.originalFileNames : []));
      const used = [...this.getModuleIds(), ...assets.map((file) => resolve(ROOT, 'dashboard', file))];
      // No module imports Tailwind, but the style sheet that it makes contains its rules.
      await recordPackages('dashboard', [...packagesOf(used), 'node_modules/tailwindcss']);
    },
  };
  await bundlePage({
    root: join(ROOT, 'dashboard'),
    configFile: false,
    logLevel: 'warn',
    // The page works below any path, because its files name each other by relative addresses.
    base: './',
    // Small files are not inlined: `data:` URLs would need a laxer content-security policy.
    build: {
      outDir: unfinished,
      emptyOutDir: false,
      assetsInlineLimit: 0,
      // Only old browsers need the polyfill, and it would be another script.
      modulePreload: { polyfill: false },
      target: 'es2023',
      reportCompressedSize: false,
      // pdf.js is larger, but is loaded only with the first PDF.
      chunkSizeWarningLimit: 1_500,
      // React's packages mark modules for browsers; all modules of the page are.
      rolldownOptions: {
        // On a slow machine, Vite reports the time of its plugins.
        checks: { pluginTimings: false },
        onwarn: (warning, warn) => warning.code === 'MODULE_LEVEL_DIRECTIVE' || warn(warning),
      },
    },
    plugins: [tailwind(), recording],
    oxc: { jsx: { runtime: 'automatic', importSource: 'react' } },
  });
  await compress(join(unfinished, 'assets'));
  await rm(join(DIST, 'dashboard'), { recursive: true, force: true });
  await rename(unfinished, join(DIST, 'dashboard'));
}

/** Writes the types with which the dashboard is checked. */
async function buildContract(): Promise<void> {
  const { writeContract } = await import('./packaging/dashboard-api-types.ts');
  await writeContract();
}

const PARTS: Record<string, () => Promise<void>> = {
  contract: buildContract,
  gateway: buildGateway,
  dashboard: buildDashboard,
  commands: buildCommands,
};
const [only, ...flags] = process.argv.slice(2);
if (only !== undefined && !(only in PARTS))
  throw new Error(`no part is called ${only}: ${Object.keys(PARTS).join(' ')}`);
// wrangler builds before each start, even if nothing has changed.
if (only === 'dashboard' && flags.includes('--if-stale') && !(await pageIsStale())) process.exit();
for (const [name, make] of Object.entries(PARTS)) if (only === undefined || only === name) await make();
