/**
 * `otela-factory recipe NAME --gpu KIND`: prints lines for factory.toml. It runs the planner, a separate program, to
 * find how many GPUs the model needs.
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { commandRunner, type RunCommand } from '../../node/command-runner.ts';
import { EXIT_DONE, UsageError } from '../../shared/command-line/index.ts';
import { gpuClass } from '../../shared/hardware/gpu-classes.ts';
import type { Io } from '../../shared/terminal/command-io.ts';
import { ENGINES, type EngineKind } from '../config/schema.ts';

const TENSOR_PARALLEL = [1, 2, 4, 8] as const;
/** Default context length of a replica in tokens. A longer one leaves less memory for concurrent requests. */
const CONTEXT_DEFAULT = 32_768;
/**
 * Number of full contexts that must fit into the memory together, because a replica serves several requests
 * concurrently.
 */
const CONTEXTS_AT_ONCE = 2;
const CONTEXT_STEP = 1_024;
const PROBE_INPUT = 320;

const catalogueSchema = z.object({
  gpus: z.array(z.object({ id: z.string(), gpusPerNode: z.number() })),
  models: z.array(z.object({ id: z.string(), context: z.number() })),
});
const probeSchema = z.object({ simulatedTokens: z.number().positive(), kvPeak: z.number().positive() });

/**
 * Returns the command of the planner: the program next to this one (in a clone, a build or a release), otherwise
 * `otela-plan` on the PATH.
 */
function plannerCommand(): [string, ...string[]] {
  const near = ['../../scheduler/cli/main.ts', './otela-plan.js'].map((path) =>
    fileURLToPath(new URL(path, import.meta.url)),
  );
  const found = near.find((path) => existsSync(path));
  return found === undefined ? ['otela-plan'] : [process.execPath, found];
}

interface RecipeRequest {
  model: string | undefined;
  gpu: string | undefined;
  engine: string;
  context: string | undefined;
}

/** @throws UsageError if the arguments are wrong, or no engine fits */
export async function recipeCommand(
  { model, gpu, engine: named, context }: RecipeRequest,
  io: Io,
  run: RunCommand = commandRunner(),
): Promise<number> {
  if (model === undefined || gpu === undefined)
    throw new UsageError('NAME and --gpu are required: otela-factory recipe NAME --gpu KIND');
  const engine = engineOf(named);
  if (context !== undefined && !/^[1-9]\d{2,7}$/.test(context))
    throw new UsageError(`--context: "${context}" is not a number of tokens`);
  const plan = async (args: readonly string[]): Promise<string> => {
    const [file, ...first] = plannerCommand();
    const result = await run(file, [...first, ...args]);
    if (result.kind === 'done' && result.code === 0) return result.out;
    throw new UsageError(result.errors.replace(/^otela-plan: /, ''));
  };
  const { gpus, models } = catalogueSchema.parse(JSON.parse(await plan(['catalogue', '--json'])));
  const kind = gpus.find(({ id }) => id === gpu) ?? gpus.find(({ id }) => gpuClass(id) === gpuClass(gpu));
  if (kind === undefined)
    throw new UsageError(`the planner does not know the GPU ${gpu}; it knows ${gpus.map(({ id }) => id).join(', ')}`);
  const most = models.find(({ id }) => id === model)?.context ?? CONTEXT_DEFAULT;
  const wanted = context === undefined ? Math.min(most, CONTEXT_DEFAULT) : Number(context);
  if (wanted > most) throw new UsageError(`--context ${wanted}: ${model} supports at most ${most} tokens`);
  const found = await smallest(model, kind, wanted, plan);
  io.out(recipeText({ model, gpu: kind.id, engine, wanted, ...found }));
  return EXIT_DONE;
}

function engineOf(name: string): EngineKind {
  const found = ENGINES.find((one) => one === name);
  if (found === undefined) throw new UsageError(`--engine: "${name}" is not one of ${ENGINES.join(', ')}`);
  return found;
}

/**
 * Finds the fewest GPUs whose memory holds the weights and the contexts.
 * @throws UsageError with the context that fits on the most GPUs, or with the planner's message if the weights fit on
 * no number of GPUs
 */
async function smallest(
  model: string,
  gpu: { id: string; gpusPerNode: number },
  wanted: number,
  plan: (args: readonly string[]) => Promise<string>,
): Promise<{ gpus: number; capacity: number }> {
  let why = '';
  let largest: { gpus: number; capacity: number } | undefined;
  for (const tp of TENSOR_PARALLEL.filter((one) => one <= gpu.gpusPerNode))
    try {
      const probe = [
        '--model',
        model,
        '--gpu',
        gpu.id,
        '--tp',
        String(tp),
        '--rate',
        '1',
        '--input',
        String(PROBE_INPUT),
        '--output',
        '16',
        '--count',
        '1',
        '--json',
      ];
      const { simulatedTokens, kvPeak } = probeSchema.parse(JSON.parse(await plan(['simulate', ...probe])));
      // `kvPeak` is the share of the key-value cache that one request's tokens occupy.
      largest = { gpus: tp, capacity: Math.floor(simulatedTokens / kvPeak) };
      if (largest.capacity >= wanted * CONTEXTS_AT_ONCE) return largest;
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      why = error.message;
      // If the planner does not know the model's name, a larger number of GPUs does not help.
      if (!/does not fit/.test(why)) throw error;
    }
  if (largest === undefined) throw new UsageError(why);
  const fits = Math.floor(largest.capacity / CONTEXTS_AT_ONCE / CONTEXT_STEP) * CONTEXT_STEP;
  throw new UsageError(
    `${model} on ${largest.gpus} × ${gpu.id} has memory for ${fits} tokens of context; give --context ${fits} or another GPU`,
  );
}

interface Recipe {
  model: string;
  gpu: string;
  engine: EngineKind;
  gpus: number;
  capacity: number;
  wanted: number;
}

function recipeText({ model, gpu, engine, gpus, capacity, wanted }: Recipe): string {
  const context = { vllm: '--max-model-len', sglang: '--context-length', lmdeploy: '--session-len' }[engine];
  const quoted = JSON.stringify(model);
  return `# ${gpus} × ${gpu}: according to otela-plan, there is memory for ${capacity.toLocaleString('en')} tokens of keys and values in addition to the weights.
[recipes.${quoted}]
weights = ${quoted}
load = "5m"

[[recipes.${quoted}.engines]]
gpu = [${JSON.stringify(gpuClass(gpu))}]
gpus = ${gpus}
engine = ${JSON.stringify(engine)}
arguments = [${JSON.stringify(context)}, "${wanted}"]

[models.${quoted}]
recipe = ${quoted}
max = 1
idle = "10m"`;
}
