/**
 * A context: everything that determines an engine. Two jobs with the same context serve the same model in the same way.
 */
import { createHash } from 'node:crypto';
import type { Parameters } from '../../shared/deployment/template-parameters.ts';
import { parseSource } from '../../shared/weights/weights-source.ts';
import type { ModelPlacement } from '../config/placements.ts';
import type { EngineConfig, EngineKind } from '../config/schema.ts';

/** First hex digits of the hash, in names of jobs and labels of nodes. */
const CONTEXT_DIGITS = 12;

/** A template of an idle agent, with its parameters. */
export interface Deployment {
  template: string;
  parameters: Parameters;
}

/** A job's command and its surroundings. */
export interface JobContext {
  /**
   * One word per element; the job replaces {{port}}, the agent replaces {{weights}} and {{environment}} if it pulls
   * them.
   */
  command: string[];
  environment: Record<string, string>;
  container: EngineConfig['container'];
  image?: string;
  /** Directories that the container sees. */
  mounts?: string[];
  /** A source that the agent pulls and the engine runs in: a packed environment, or the container's image. */
  packed?: string;
  /** The engine's argument, or a source that the agent pulls to the local disk. */
  weights: string;
  gpus: number;
  /** The order for an idle agent, instead of the command. */
  deployment?: Deployment;
  /** absent: the file specifies the command. */
  engine?: EngineKind;
}

export function jobContext(
  model: string,
  { recipe, engine, cluster }: Pick<ModelPlacement, 'recipe' | 'engine' | 'cluster'>,
): JobContext {
  const isPulled = engine.container !== 'none' && parseSource(engine.image ?? '') !== undefined;
  const packed = isPulled ? engine.image : engine.packed_environment;
  return {
    command: (engine.command ?? commandOf(engine.engine ?? 'vllm', engine)).map((word) =>
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
  };
}

/** Equal for equal contexts, regardless of the order of their tables. */
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
 * Flags of vLLM 0.12 to 0.19 (`vllm serve --help`), of SGLang (docs, "Server Arguments") and of LMDeploy (`lmdeploy
 * serve api_server --help`; its TurboMind still runs on V100).
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
