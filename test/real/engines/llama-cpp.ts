/** llama.cpp's server, from Debian, with a GGUF file. */
import { join } from 'node:path';
import { ROOT } from '../../support/where.ts';
import { metric } from '../place.ts';
import { debianProgram } from './debian-packages.ts';
import { installOnce, pythonEnvironment, run } from './install.ts';
import { TEXTS } from './python-engines.ts';
import type { RealEngine } from './real-engine.ts';

const VERSION = '0.7.0';
const GGUF = 'gguf-1';
const program = debianProgram({
  name: `llama.cpp-${VERSION}`,
  packages: ['llama.cpp-tools'],
  program: 'llama-server',
  folders: ['llama'],
});

function ggufFolder(): Promise<string> {
  return installOnce(GGUF, async (made) => {
    const bin = await pythonEnvironment(made, { packages: ['gguf==0.18.0', 'numpy', 'tokenizers==0.22.2'] });
    await run(join(bin, 'python'), [join(ROOT, 'test/real/engines/tiny_gguf.py'), join(made, 'tiny.gguf'), ...TEXTS]);
  });
}

export async function makeGguf(): Promise<string> {
  return join(await ggufFolder(), 'tiny.gguf');
}

/** A Python with numpy. */
export async function ggufPython(): Promise<string> {
  return join(await ggufFolder(), 'venv/bin/python');
}

export const llamaCpp: RealEngine = {
  name: 'llama.cpp',
  version: VERSION,
  model: 'tiny',
  context: 4096,
  readyMs: 20_000,
  install: async () => {
    await program.install();
    await makeGguf();
  },
  command: async (port) => ({
    argv: [
      ...program.argv,
      ...['-m', await makeGguf(), '--alias', 'tiny', '--host', '127.0.0.1', '--port', String(port)],
      ...['--ctx-size', '8192', '--parallel', '2', '--threads', '1', '--metrics'],
    ],
    env: {},
  }),
  long: { ignore_eos: true },
  facts: {
    engine: 'llama.cpp',
    quantization: 'F16',
    context_length: 4096,
    max_batch: 2,
    input_modalities: ['text'],
  },
  reportsLoad: true,
  countsGrow: true,
  countsWithoutCached: true,
  ownCounts: async (url) => ({
    prompt: await metric(url, 'llamacpp:prompt_tokens_total'),
    completion: await metric(url, 'llamacpp:tokens_predicted_total'),
  }),
};
