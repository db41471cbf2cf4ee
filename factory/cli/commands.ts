/** All commands of `otela-factory`, in the order of its help. */
import manifest from '../../package.json' with { type: 'json' };
import {
  EXIT_DONE,
  EXIT_USAGE,
  type Flags,
  JSON_FLAG,
  type Program,
  parseLine,
} from '../../shared/command-line/index.ts';
import type { Io } from '../../shared/terminal/io.ts';
import { ENGINES } from '../config/schema.ts';
import { factoryCheckCommand } from './check.ts';
import { EXIT_BUSY, EXIT_FAILED, EXIT_FOUND, EXIT_GATEWAY } from './exit.ts';
import { recipeCommand } from './recipe.ts';
import { dryRun, runCommand } from './run.ts';
import { explainCommand, statusCommand } from './status.ts';

const CONFIG = {
  config: { value: 'FILE', takes: 'file', default: 'factory.toml', help: 'what it keeps, and where' },
} as const satisfies Flags;
const RUN = { ...CONFIG, 'dry-run': { help: 'one round, which says what it would do and does nothing' } } as const;
const CHECK = { ...CONFIG, offline: { help: 'the file alone: no cluster is asked' } } as const;
const STATUS = { ...CONFIG, ...JSON_FLAG } as const;
const RECIPE = {
  gpu: { value: 'KIND', help: 'as otela-plan catalogue names it' },
  engine: { value: 'NAME', takes: ENGINES, default: 'vllm', help: 'vllm, sglang or lmdeploy' },
  context: { value: 'TOKENS', otherwise: 'as many as the model has, up to 32768', help: 'longest prompt and answer' },
} as const satisfies Flags;

export const FACTORY_PROGRAM: Program<Io> = {
  name: 'otela-factory',
  version: manifest.version,
  about: 'otela-factory: jobs on clusters, as many as requests and batches ask for',
  exitCodes: `Exit codes: ${EXIT_DONE} done, ${EXIT_FOUND} check found a fault, ${EXIT_USAGE} wrong use or file, ${EXIT_GATEWAY} the gateway refuses, ${EXIT_FAILED} failed, ${EXIT_BUSY} another factory runs.`,
  commands: {
    run: {
      summary: 'submits, watches and ends jobs until it is told to end; its jobs run on',
      examples: '[--config FILE] [--dry-run]',
      flags: RUN,
      run: (args, io) => {
        const { values } = parseLine(args, RUN);
        return values['dry-run'] ? dryRun(values.config, io) : runCommand(values.config, io);
      },
    },
    check: {
      summary: 'reads the file, and asks the clusters whether they would take its jobs',
      examples: '[--config FILE] [--offline]',
      flags: CHECK,
      run: (args, io) => {
        const { values } = parseLine(args, CHECK);
        return factoryCheckCommand(values.config, values.offline, io);
      },
    },
    status: {
      summary: 'models, jobs, clusters and the last decisions of the factory that runs',
      examples: '[--config FILE] [--json]',
      flags: STATUS,
      run: (args, io) => {
        const { values } = parseLine(args, STATUS);
        return statusCommand(values.config, values.json, io);
      },
    },
    explain: {
      summary: 'why a model has the jobs that it has',
      examples: 'MODEL [--config FILE] [--json]',
      flags: STATUS,
      run: (args, io) => {
        const { values, words } = parseLine(args, STATUS, { words: 1 });
        return explainCommand(values.config, words[0], values.json, io);
      },
    },
    recipe: {
      summary: 'a recipe for the file: parallelism and context length by the planner',
      examples: 'NAME --gpu KIND [--engine vllm|sglang|lmdeploy] [--context TOKENS]',
      flags: RECIPE,
      run: (args, io) => {
        const { values, words } = parseLine(args, RECIPE, { words: 1 });
        return recipeCommand({ model: words[0], ...values }, io);
      },
    },
  },
};
