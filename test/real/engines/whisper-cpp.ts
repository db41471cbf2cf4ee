/** whisper.cpp's server, from Debian, with a tiny Whisper of random weights. It has no `/v1/models`. */
import { join } from 'node:path';
import { ROOT } from '../../support/where.ts';
import { debianProgram } from './debian-packages.ts';
import { installOnce, run } from './install.ts';
import { ggufPython } from './llama-cpp.ts';
import type { RealEngine } from './real-engine.ts';

const VERSION = '1.9.5';
const WEIGHTS = 'whisper-1';
const program = debianProgram({
  name: `whisper.cpp-${VERSION}`,
  packages: ['whisper.cpp-tools'],
  program: 'whisper-server',
  folders: ['pulseaudio'],
});

async function makeWeights(): Promise<string> {
  const python = await ggufPython();
  const folder = await installOnce(WEIGHTS, async (made) => {
    await run(python, [join(ROOT, 'test/real/engines/tiny_whisper.py'), join(made, 'tiny.bin')]);
  });
  return join(folder, 'tiny.bin');
}

export const whisperCpp: RealEngine = {
  name: 'whisper.cpp',
  version: VERSION,
  model: 'whisper-tiny',
  context: 448,
  readyMs: 20_000,
  hears: true,
  install: async () => {
    await program.install();
    await makeWeights();
  },
  command: async (port) => ({
    argv: [
      ...program.argv,
      ...['-m', await makeWeights(), '--host', '127.0.0.1', '--port', String(port), '-t', '1'],
      ...['--inference-path', '/v1/audio/transcriptions'],
    ],
    env: {},
  }),
  long: {},
  facts: {},
  reportsLoad: false,
};
