/**
 * Engines of five kinds join with one flag, `--engine-url`, and the gateway knows what they serve. The engines are
 * mocks that answer about themselves as each kind does.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { startAgent } from '../support/agent.ts';
import type { EngineOptions } from '../support/engine/mock-engine.ts';
import { startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { ggufHeader } from '../support/gguf-file.ts';
import { atEnd, endAll, eventually, Managed, temporaryDirectory } from '../support/processes.ts';
import { chatBody } from '../support/test-cluster.ts';
import { NODE, ROOT } from '../support/where.ts';

const WAIT_MS = 15_000;

let gateway: Gateway;
let key: string;
let token: string;

beforeAll(async () => {
  gateway = await Gateway.start();
  [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
});
afterAll(endAll);

const listSchema = z.object({ data: z.array(z.looseObject({ id: z.string() })) });
const nodesSchema = z.object({
  data: z.array(z.looseObject({ models: z.array(z.looseObject({ id: z.string() })) })),
});

async function get<T>(path: string, schema: z.ZodType<T>): Promise<T> {
  const response = await fetch(`${gateway.url}/v1/${path}`, { headers: { authorization: `Bearer ${key}` } });
  return schema.parse(await response.json());
}

/** The facts that a node publishes about `model`, when they contain `expected`. */
async function published(model: string, expected: Record<string, unknown>): Promise<void> {
  let last: unknown;
  await eventually(`facts about ${model}`, WAIT_MS, async () => {
    const { data } = await get('registry/nodes', nodesSchema);
    last = data.flatMap(({ models }) => models).find(({ id }) => id === model);
    return Object.entries(expected).every(
      ([name, value]) => JSON.stringify(z.looseObject({}).safeParse(last).data?.[name]) === JSON.stringify(value),
    )
      ? true
      : undefined;
  }).catch(() => expect(last).toMatchObject(expected));
}

const listed = async (model: string) => (await get('models', listSchema)).data.find(({ id }) => id === model);

async function startFor(engineUrl: string): Promise<void> {
  await startAgent({ gateways: [gateway.url], token, engineUrl });
}

async function startForm(options: EngineOptions): Promise<void> {
  const engine = await startEngine(options);
  atEnd(() => engine.close());
  await startFor(engine.url);
}

async function ask(model: string, requirement: string): Promise<Response> {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  return fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { ...headers, 'x-otela-require': requirement },
    body: JSON.stringify(chatBody({ tokens: 1 }, { model })),
  });
}

const QWEN = { architectures: ['Qwen3ForCausalLM'], torch_dtype: 'bfloat16', max_position_embeddings: 40_960 };

async function checkpoint(config: object): Promise<string> {
  const folder = await temporaryDirectory('checkpoint');
  await writeFile(join(folder, 'config.json'), JSON.stringify(config));
  return folder;
}

/** `vllm serve Qwen/Qwen3-8B …` with its checkpoint in the hub's cache. Returns the engine's URL. */
async function startVllm(...flags: string[]): Promise<string> {
  const folder = await temporaryDirectory('vllm');
  const snapshot = join(
    folder,
    'hub',
    'models--Qwen--Qwen3-8B',
    'snapshots',
    'b968826d9c46dd6066d109eabc6255188de91218',
  );
  await mkdir(snapshot, { recursive: true });
  await writeFile(join(snapshot, 'config.json'), JSON.stringify(QWEN));
  const path = join(folder, 'vllm');
  await writeFile(path, `import(${JSON.stringify(join(ROOT, 'test/support/engine.ts'))}).then(({ main }) => main());`);
  const words = [NODE, path, 'serve', 'Qwen/Qwen3-8B', '--form', 'vllm', '--model', 'Qwen/Qwen3-8B', ...flags];
  const engine = new Managed(words, { env: { HF_HOME: folder } });
  return (await engine.line(/ready (http:\S+)/, WAIT_MS))[1] ?? '';
}

it('a plain vllm serve has 16 bits, because the agent sees its flags and its checkpoint', async () => {
  await startFor(await startVllm('--reasoning-parser', 'qwen3', '--tool-call-parser', 'hermes'));
  await published('Qwen/Qwen3-8B', {
    ...{ quantization: 'bfloat16', context_length: 32_768, engine: 'vllm', engine_version: '0.32.0' },
    ...{ input_modalities: ['text'], output_modalities: ['text'], kv_tokens: 436_528 },
    ...{ tool_parser: 'hermes', reasoning_parser: 'qwen3' },
  });
  expect((await ask('Qwen/Qwen3-8B', 'quantization>=16')).status).toBe(200);
  expect((await ask('Qwen/Qwen3-8B', 'precision=bf16; context>=32768')).status).toBe(200);
  expect((await ask('Qwen/Qwen3-8B', 'precision=fp8')).status).toBe(412);
});

it('the list of models has these facts where clients look for them', async () => {
  expect(await listed('Qwen/Qwen3-8B')).toMatchObject({
    ...{ object: 'model', owned_by: 'lab', display_name: 'Qwen3-8B' },
    ...{ max_model_len: 32_768, context_length: 32_768, max_input_tokens: 32_768 },
    architecture: { input_modalities: ['text'], output_modalities: ['text'] },
    x_otela: {
      tool_parsers: ['hermes'],
      kinds: [
        {
          ...{ precision: 'bf16', context_length: 32_768, nodes: 1, engines: ['vllm 0.32.0'] },
          require: 'precision=bf16; context=32768',
        },
      ],
    },
  });
});

const differingSchema = z.looseObject({
  x_otela: z.object({
    differ: z.array(z.string()),
    kinds: z.array(z.looseObject({ require: z.string(), precision: z.string() })),
  }),
});

it('a second replica that was quantized by a flag is told apart, and a request can ask for one of the two', async () => {
  await startFor(await startVllm('--quantization', 'fp8'));
  const kinds = await eventually('two kinds', WAIT_MS, async () => {
    const { data } = differingSchema.safeParse(await listed('Qwen/Qwen3-8B'));
    return data?.x_otela;
  });
  expect(kinds.differ).toEqual(['precision']);
  expect(kinds.kinds.map(({ precision }) => precision).sort()).toEqual(['bf16', 'fp8']);
  for (const { require } of kinds.kinds) {
    const nodes = new Set<string | null>();
    for (let n = 0; n < 4; n++) {
      const response = await ask('Qwen/Qwen3-8B', require);
      expect(response.status, await response.text()).toBe(200);
      nodes.add(response.headers.get('x-otela-node'));
    }
    expect(nodes.size).toBe(1);
  }
});

it('SGLang', async () => {
  await startForm({ form: 'sglang', models: ['of-sglang'], checkpoint: await checkpoint(QWEN) });
  await published('of-sglang', {
    ...{ quantization: 'bfloat16', context_length: 32_768, engine: 'sglang', engine_version: '0.5.17' },
    ...{ input_modalities: ['text'], output_modalities: ['text'], kv_tokens: 436_528, max_batch: 2048 },
    ...{ tool_parser: 'qwen25', reasoning_parser: 'qwen3' },
  });
});

it('llama.cpp', async () => {
  const file = join(await temporaryDirectory('gguf'), 'Qwen3-8B.gguf');
  await writeFile(
    file,
    ggufHeader([{ name: 'general.file_type', type: 'u32', value: 15 }], [{ name: 'a', shape: [7] }]),
  );
  await startForm({ form: 'llamacpp', models: ['of-llamacpp'], checkpoint: file, maxModelLen: 65_536 });
  await published('of-llamacpp', {
    ...{ quantization: 'Q4_K_M', context_length: 65_536, engine: 'llama.cpp', engine_version: 'b8681-5d1e5b5e' },
    ...{ input_modalities: ['text', 'image'], max_batch: 4, parameters: 8_190_735_360 },
    ...{ tool_parser: 'builtin', reasoning_parser: 'deepseek' },
  });
  expect((await ask('of-llamacpp', 'quantization>=4; engine=llama.cpp')).status).toBe(200);
});

it('Ollama', async () => {
  await startForm({ form: 'ollama', models: ['qwen3:8b'], maxModelLen: 16_384 });
  await published('qwen3:8b', {
    ...{ quantization: 'Q4_K_M', context_length: 16_384, engine: 'ollama', engine_version: '0.12.3' },
    ...{ input_modalities: ['text'], output_modalities: ['text'], parameters: 8_190_735_360 },
    ...{ tool_parser: 'builtin', reasoning_parser: 'builtin' },
  });
});

it('TGI', async () => {
  await startForm({ form: 'tgi', models: ['org/of-tgi'], maxModelLen: 8192 });
  await published('org/of-tgi', {
    ...{ context_length: 8192, engine: 'tgi', engine_version: '3.3.6', max_batch: 128 },
    revision: '895c8d171bc03c30e113cd7a28c02494b5e068b7',
  });
});
