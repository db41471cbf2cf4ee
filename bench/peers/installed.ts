/** Where peers are installed: outside the repository, in pinned versions, kept for the next run. */
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { eventually, Managed } from '../../test/support/processes.ts';

const CACHE = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'otela-bench-peers');
/** Maximum time of an installation: LiteLLM has hundreds of dependencies. */
const INSTALL_MS = 600_000;
/** Maximum time of a start: LiteLLM's imports take 15 to 30 s on a small machine. */
const READY_MS = 120_000;

async function finish(label: string, command: string[], cwd?: string): Promise<string> {
  // The user's environment names their registries, proxies and certificates.
  const child = new Managed(command, { label, env: process.env as Record<string, string>, ...(cwd && { cwd }) });
  const { code } = await child.end(INSTALL_MS);
  if (code !== 0) throw child.failure(`exit code ${code}`);
  return child.output;
}

/** A virtual environment with exactly these packages; returns the directory of its programs. */
export async function python(name: string, packages: readonly string[]): Promise<string> {
  const directory = join(CACHE, `${name}-${packages.join('-').replaceAll(/[^\w.-]+/g, '_')}`);
  const done = join(directory, 'installed');
  if (!existsSync(done)) {
    mkdirSync(directory, { recursive: true });
    await finish(name, ['python3', '-m', 'venv', directory]);
    await finish(name, [join(directory, 'bin/python'), '-m', 'pip', 'install', '--quiet', ...packages]);
    writeFileSync(done, '');
  }
  return join(directory, 'bin');
}

/** A folder with this `package.json` installed. */
export async function npm(name: string, manifest: object): Promise<string> {
  const directory = join(CACHE, name);
  const file = join(directory, 'package.json');
  if (!existsSync(join(directory, 'node_modules/.package-lock.json'))) {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, JSON.stringify(manifest));
    await finish(name, ['npm', 'install', '--silent', '--no-audit', '--no-fund'], directory);
  }
  return directory;
}

/** Waits until `url` answers anything. @throws Error with the output of `process` */
export async function answering(url: string, process: Managed): Promise<void> {
  await eventually(`${process.label} answers`, READY_MS, async () => {
    if (!process.running) throw process.failure('ended');
    const response = await fetch(url, { signal: AbortSignal.timeout(2_000) });
    await response.arrayBuffer();
    return true;
  });
}
