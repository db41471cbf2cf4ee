/**
 * What the agent knows about the command line of each engine. An engine without a row is served as well, if
 * `--engine-port` or `--engine-url` says where.
 */
import type { ModelFacts } from './facts/model-facts.ts';

export type EngineName =
  | 'vllm'
  | 'sglang'
  | 'llama.cpp'
  | 'ollama'
  | 'tgi'
  | 'lmdeploy'
  | 'tensorrt-llm'
  | 'transformers';

export interface EngineKind {
  name: EngineName;
  /** Name of its program, without the folder. */
  program: string;
  /** Prefix of the Python modules that also start it. */
  module?: string;
  /** The word that must follow the program, because the program has other commands, too. */
  command?: string;
  /** Port if the command line names none. */
  port: number;
  portFlags: readonly string[];
  /** Flag with the address at which it listens. */
  hostFlag: string;
  /** Flags that name the checkpoint. */
  modelFlags: readonly string[];
  /** The word after which the checkpoint stands without a flag. */
  modelAfter?: string;
  /** Flag after which one or more names of the served model stand. */
  nameFlags: readonly string[];
  /** True: without such a flag, the model has the checkpoint's name. */
  namedByCheckpoint: boolean;
  /** True: it serves each model of the hub's cache under its name on the hub. */
  servesHubCache?: true;
  /** Flags with facts about all its models. */
  facts: Readonly<Partial<Record<keyof ModelFacts, readonly string[]>>>;
}

const PORT = ['--port'];
const HOST = '--host';
const SERVED = ['--served-model-name'];
const OF_VLLM_AND_SGLANG = {
  quantization: ['--quantization', '-q'],
  revision: ['--revision'],
  tool_parser: ['--tool-call-parser'],
  reasoning_parser: ['--reasoning-parser'],
};

export const ENGINE_KINDS: readonly EngineKind[] = [
  {
    name: 'vllm',
    program: 'vllm',
    module: 'vllm.entrypoints',
    port: 8000,
    portFlags: PORT,
    hostFlag: HOST,
    modelFlags: ['--model', '--model-tag'],
    modelAfter: 'serve',
    nameFlags: SERVED,
    namedByCheckpoint: true,
    facts: { ...OF_VLLM_AND_SGLANG, context_length: ['--max-model-len'], max_batch: ['--max-num-seqs'] },
  },
  {
    name: 'sglang',
    program: 'sglang',
    module: 'sglang.launch_server',
    port: 30_000,
    portFlags: PORT,
    hostFlag: HOST,
    modelFlags: ['--model-path', '--model'],
    modelAfter: 'serve',
    nameFlags: SERVED,
    namedByCheckpoint: true,
    facts: { ...OF_VLLM_AND_SGLANG, context_length: ['--context-length'], max_batch: ['--max-running-requests'] },
  },
  {
    name: 'llama.cpp',
    program: 'llama-server',
    port: 8080,
    portFlags: PORT,
    hostFlag: HOST,
    modelFlags: ['-m', '--model'],
    nameFlags: ['--alias', '-a'],
    // Without an alias, the name depends on llama.cpp's version.
    namedByCheckpoint: false,
    // `/props` has them.
    facts: {},
  },
  {
    name: 'ollama',
    program: 'ollama',
    command: 'serve',
    port: 11_434,
    portFlags: [],
    hostFlag: HOST,
    modelFlags: [],
    nameFlags: [],
    namedByCheckpoint: false,
    facts: {},
  },
  {
    name: 'tgi',
    program: 'text-generation-launcher',
    port: 3000,
    portFlags: ['--port', '-p'],
    hostFlag: '--hostname',
    modelFlags: ['--model-id'],
    nameFlags: ['--served-model-name'],
    namedByCheckpoint: false,
    facts: { quantization: ['--quantize'], revision: ['--revision'], context_length: ['--max-total-tokens'] },
  },
  {
    name: 'lmdeploy',
    program: 'lmdeploy',
    command: 'serve',
    port: 23_333,
    portFlags: ['--server-port'],
    hostFlag: '--server-name',
    modelFlags: [],
    modelAfter: 'api_server',
    nameFlags: ['--model-name'],
    namedByCheckpoint: true,
    facts: {
      revision: ['--revision'],
      context_length: ['--session-len'],
      max_batch: ['--max-batch-size'],
      tool_parser: ['--tool-call-parser'],
      reasoning_parser: ['--reasoning-parser'],
    },
  },
  {
    name: 'tensorrt-llm',
    program: 'trtllm-serve',
    port: 8000,
    portFlags: PORT,
    hostFlag: HOST,
    modelFlags: [],
    nameFlags: [],
    namedByCheckpoint: false,
    facts: {
      context_length: ['--max_seq_len'],
      max_batch: ['--max_batch_size'],
      tool_parser: ['--tool_parser'],
      reasoning_parser: ['--reasoning_parser'],
    },
  },
  {
    name: 'transformers',
    program: 'transformers',
    module: 'transformers.cli.transformers',
    command: 'serve',
    port: 8000,
    portFlags: PORT,
    hostFlag: HOST,
    modelFlags: ['--force-model'],
    modelAfter: 'serve',
    nameFlags: [],
    namedByCheckpoint: false,
    servesHubCache: true,
    facts: {},
  },
];

/**
 * Recognizes `vllm serve`, `python -m vllm.entrypoints.openai.api_server`, `/opt/venv/bin/vllm`, `llama-server` and
 * others.
 */
export function engineKind(words: readonly string[]): EngineKind | undefined {
  for (const [index, word] of words.entries()) {
    const base = word.slice(word.lastIndexOf('/') + 1);
    const kind = ENGINE_KINDS.find(
      ({ program, module, command }) =>
        (base === program || (module !== undefined && word.startsWith(module))) &&
        (command === undefined || words[index + 1] === command),
    );
    if (kind !== undefined) return kind;
  }
  return undefined;
}
