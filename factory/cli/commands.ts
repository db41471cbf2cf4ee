/** All commands of `otela-factory`, in the order of its help. */
import manifest from '../../package.json' with { type: 'json' };
import {
  EXIT_DONE,
  EXIT_SOFTWARE,
  EXIT_UNAVAILABLE,
  EXIT_USAGE,
  type Flags,
  JSON_FLAG,
  type Program,
  parseLine,
} from '../../shared/command-line/index.ts';
import type { Io } from '../../shared/terminal/command-io.ts';
import { ENGINES } from '../config/schema.ts';
import { factoryCheckCommand } from './check-command.ts';
import { EXIT_BUSY, EXIT_FOUND } from './exit-code.ts';
import { recipeCommand } from './recipe-command.ts';
import { dryRun, runCommand } from './run-command.ts';
import { explainCommand, statusCommand } from './status-command.ts';

const CONFIG = {
  config: {
    value: 'FILE',
    takes: 'file',
    default: 'factory.toml',
    help: 'configuration file with models and clusters',
  },
} as const satisfies Flags;
const RUN = {
  ...CONFIG,
  'dry-run': { help: 'run one round that prints the planned actions and changes nothing' },
} as const;
const CHECK = { ...CONFIG, offline: { help: 'check only the file, and contact no cluster' } } as const;
const STATUS = { ...CONFIG, ...JSON_FLAG } as const;
const RECIPE = {
  gpu: { value: 'KIND', help: 'GPU, as named in otela-plan catalogue' },
  engine: { value: 'NAME', takes: ENGINES, default: 'vllm', help: 'engine of the recipe: vllm, sglang or lmdeploy' },
  context: {
    value: 'TOKENS',
    otherwise: 'the maximum of the model, at most 32768',
    help: 'maximum tokens of a prompt and its response',
  },
} as const satisfies Flags;

export const FACTORY_PROGRAM: Program<Io> = {
  name: 'otela-factory',
  version: manifest.version,
  about: 'otela-factory is the autoscaler: it starts and ends jobs on clusters as demand changes.',
  exitCodes: `Exit codes: ${EXIT_DONE} done, ${EXIT_FOUND} check found a problem, ${EXIT_USAGE} wrong usage or file, ${EXIT_UNAVAILABLE} refused by the gateway, ${EXIT_SOFTWARE} failed, ${EXIT_BUSY} another otela-factory is running.`,
  commands: {
    run: {
      summary: 'start, watch and end jobs until it is stopped; its jobs then continue',
      examples: '[--config FILE] [--dry-run]',
      flags: RUN,
      run: (args, io) => {
        const { values } = parseLine(args, RUN);
        return values['dry-run'] ? dryRun(values.config, io) : runCommand(values.config, io);
      },
    },
    check: {
      summary: 'check the file, and whether the clusters would accept its jobs',
      examples: '[--config FILE] [--offline]',
      flags: CHECK,
      run: (args, io) => {
        const { values } = parseLine(args, CHECK);
        return factoryCheckCommand(values.config, values.offline, io);
      },
    },
    status: {
      summary: 'show models, jobs, clusters and the last decisions of the running otela-factory',
      examples: '[--config FILE] [--json]',
      flags: STATUS,
      run: (args, io) => {
        const { values } = parseLine(args, STATUS);
        return statusCommand(values.config, values.json, io);
      },
    },
    explain: {
      summary: 'explain the number of jobs of a model',
      examples: 'MODEL [--config FILE] [--json]',
      flags: STATUS,
      run: (args, io) => {
        const { values, words } = parseLine(args, STATUS, { words: 1 });
        return explainCommand(values.config, words[0], values.json, io);
      },
    },
    recipe: {
      summary: 'print a recipe for the file, with parallelism and context length from the planner',
      examples: 'NAME --gpu KIND [--engine vllm|sglang|lmdeploy] [--context TOKENS]',
      flags: RECIPE,
      run: (args, io) => {
        const { values, words } = parseLine(args, RECIPE, { words: 1 });
        return recipeCommand({ model: words[0], ...values }, io);
      },
    },
  },
};
