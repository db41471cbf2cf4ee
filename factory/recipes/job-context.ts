/**
 * Defines a job's context: everything that determines how its engine serves. Two jobs with the same context are
 * interchangeable.
 */
import { createHash } from 'node:crypto';
import type { Parameters } from '../../shared/deployment/template-parameters.ts';
import { parseSource } from '../../shared/weights/weights-source.ts';
import type { ModelPlacement } from '../config/model-placements.ts';
import type { EngineConfig, EngineKind } from '../config/schema.ts';

/** How many hex digits of the context's hash are used in names of jobs and labels of nodes. */
const CONTEXT_DIGITS = 12;

/** A deployment template of an idle agent, with its parameters. */
export interface Deployment {
  template: string;
  parameters: Parameters;
}

/** A job's command, and everything else that determines its engine. */
export interface JobContext {
  /**
   * The command, one word per element. The job's script replaces {{port}}; the agent replaces {{weights}} and
   * {{environment}} if it pulls them.
   */
  command: string[];
  environment: Record<string, string>;
  container: EngineConfig['container'];
  image?: string;
  /** Directories that are mounted in the container. */
  mounts?: string[];
  /** A source that the agent pulls, and in which the engine runs: a packed environment, or the container's image. */
  packed?: string;
  /** The weights: the argument that the engine gets, or a source that the agent pulls to the local disk. */
  weights: string;
  gpus: number;
  /** The deployment to order from an idle agent, instead of a command. */
  deployment?: Deployment;
  /** The engine whose command is generated; absent: the file specifies the command. */
  engine?: EngineKind;
  /** For a job that runs functions and no engine. */
  functions?: { owners: string[]; flags: string[] };
}

export function jobContext(
  model: string,
  { recipe, engine, cluster }: Pick<ModelPlacement, 'recipe' | 'engine' | 'cluster'>,
): JobContext {
  const isPulled = engine.container !== 'none' && parseSource(engine.image ?? '') !== undefined;
  const packed = isPulled ? engine.image : engine.packed_environment;
  return {
    command: commandWords(engine).map((word) =>
      word
        .replaceAll('{{weights}}', parseSource(recipe.weights) === undefined ? recipe.weights : '{{weights}}')
        .replaceAll('{{model}}', model)
        .replaceAll('{{gpus}}', String(engine.gpus)),
    ),
    environment: { ...cluster.environment, ...recipe.environment, ...engine.environment },
    container: engine.container,
    ...(engine.image === undefined ? {} : { image: isPulled ? '{{environment}}' : engine.image }),
    ...(engine.container === 'none' || cluster.mounts.length === 0 ? {} : { mounts: cluster.mounts }),
    ...(packed === undefined ? {} : { packed }),
    weights: recipe.weights,
    gpus: engine.gpus,
    ...(engine.template === undefined
      ? {}
      : { deployment: { template: engine.template, parameters: { model, ...engine.parameters } } }),
    ...(engine.engine === undefined || engine.command !== undefined ? {} : { engine: engine.engine }),
    ...(engine.allow_functions === undefined
      ? {}
      : { functions: { owners: engine.allow_functions, flags: engine.arguments } }),
  };
}

function commandWords(engine: EngineConfig): string[] {
  if (engine.allow_functions !== undefined) return [];
  return engine.command ?? commandOf(engine.engine ?? 'vllm', engine);
}

/** Returns the id of a context. It does not depend on the order of keys. */
export function jobContextId(context: JobContext): string {
  return createHash('sha256').update(canonical(context)).digest('hex').slice(0, CONTEXT_DIGITS);
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, one]) => `${JSON.stringify(key)}:${canonical(one)}`).join(',')}}`;
}

/**
 * Generates the engine's command. Sources of the flags: vLLM 0.12 to 0.19 (`vllm serve --help`), SGLang (docs, "Server
 * Arguments") and LMDeploy (`lmdeploy serve api_server --help`; its TurboMind still runs on V100).
 */
function commandOf(kind: EngineKind, { arguments: more }: EngineConfig): string[] {
  switch (kind) {
    case 'vllm':
      return [
        'vllm',
        'serve',
        '{{weights}}',
        '--served-model-name',
        '{{model}}',
        '--tensor-parallel-size',
        '{{gpus}}',
        '--host',
        '127.0.0.1',
        '--port',
        '{{port}}',
        ...more,
      ];
    case 'sglang':
      return [
        'python3',
        '-m',
        'sglang.launch_server',
        '--model-path',
        '{{weights}}',
        '--served-model-name',
        '{{model}}',
        '--tp',
        '{{gpus}}',
        '--enable-metrics',
        '--host',
        '127.0.0.1',
        '--port',
        '{{port}}',
        ...more,
      ];
    case 'lmdeploy':
      return [
        'lmdeploy',
        'serve',
        'api_server',
        '{{weights}}',
        '--model-name',
        '{{model}}',
        '--tp',
        '{{gpus}}',
        '--server-name',
        '127.0.0.1',
        '--server-port',
        '{{port}}',
        ...more,
      ];
  }
}
