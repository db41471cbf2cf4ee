/** Ollama, compiled from its Go module, with the GGUF file of llama.cpp. */
import { createHash } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { ENGINES_HOME, installOnce, run } from './install.ts';
import { makeGguf } from './llama-cpp.ts';
import type { RealEngine } from './real-engine.ts';

const VERSION = '0.17.4';
const FOLDER = `ollama-${VERSION}`;
const NAME = 'tiny';

const countsSchema = z.object({ prompt_eval_count: z.number(), eval_count: z.number() });

async function post(url: string, body: object): Promise<unknown> {
  const response = await fetch(url, { method: 'POST', body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
  return response.json();
}

/** Gives the engine the model, as `ollama create` does. */
async function create(url: string): Promise<void> {
  const file = await readFile(await makeGguf());
  const digest = `sha256:${createHash('sha256').update(file).digest('hex')}`;
  const uploaded = await fetch(`${url}/api/blobs/${digest}`, { method: 'POST', body: file });
  if (!uploaded.ok) throw new Error(`/api/blobs: ${uploaded.status} ${await uploaded.text()}`);
  await post(`${url}/api/create`, { model: NAME, files: { 'tiny.gguf': digest }, stream: false });
}

export const ollama: RealEngine = {
  name: 'Ollama',
  version: VERSION,
  model: `${NAME}:latest`,
  context: 4096,
  readyMs: 20_000,
  install: async () => {
    await installOnce(FOLDER, async (folder) => {
      const env = { GOBIN: folder, GOFLAGS: '-buildvcs=false -p=2', CGO_CXXFLAGS: '-O1', CGO_CFLAGS: '-O2' };
      await run('go', ['install', `github.com/ollama/ollama@v${VERSION}`], env);
    });
    await makeGguf();
  },
  command: async (port) => {
    const models = join(ENGINES_HOME, FOLDER, 'models');
    await mkdir(models, { recursive: true });
    return {
      argv: [join(ENGINES_HOME, FOLDER, 'ollama'), 'serve'],
      env: { OLLAMA_HOST: `127.0.0.1:${port}`, OLLAMA_MODELS: models, OLLAMA_CONTEXT_LENGTH: '4096' },
    };
  },
  prepare: create,
  long: {},
  facts: { engine: 'ollama', engine_version: '0.0.0', quantization: 'F16', context_length: 4096 },
  reportsLoad: false,
  // The same request in its own API has the counts of its runner.
  ownCounts: async (url, body) => {
    const { messages, max_tokens } = z.object({ messages: z.unknown(), max_tokens: z.number() }).parse(body);
    const options = { temperature: 0, num_predict: max_tokens };
    const counts = countsSchema.parse(await post(`${url}/api/chat`, { model: NAME, messages, options, stream: false }));
    return { prompt: counts.prompt_eval_count, completion: counts.eval_count };
  },
};
