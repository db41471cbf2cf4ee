/** All commands of `otela-plan`, in the order of its help. */
import manifest from '../../package.json' with { type: 'json' };
import {
  EXIT_DONE,
  EXIT_SOFTWARE,
  EXIT_UNAVAILABLE,
  EXIT_USAGE,
  type Program,
} from '../../shared/command-line/index.ts';
import type { Io } from '../../shared/terminal/command-io.ts';
import { CALIBRATE_FLAGS as CALIBRATE, calibrateCommand } from './calibrate-command.ts';
import { CATALOGUE_COMMAND_FLAGS as CATALOGUE, catalogueCommand } from './catalogue-command.ts';
import { COMPARE_FLAGS as COMPARE, compareCommand } from './compare-command.ts';
import { EXIT_INFEASIBLE, EXIT_TIME_OUT } from './exit-codes.ts';
import { PLAN_COMMAND_FLAGS as PLAN, planCommand } from './plan-command.ts';
import { REGIONS_FLAGS as REGIONS, regionsCommand } from './regions-command.ts';
import { SIMULATE_FLAGS as SIMULATE, simulateCommand } from './simulate-command.ts';
import { VALIDATE_FLAGS as VALIDATE, validateCommand } from './validate-command.ts';
import { WATCH_FLAGS as WATCH, watchCommand } from './watch-command.ts';

export const PLAN_PROGRAM: Program<Io> = {
  name: 'otela-plan',
  version: manifest.version,
  about: 'otela-plan is the planner: it decides which model runs on which GPUs.',
  exitCodes: `Exit codes: ${EXIT_DONE} done, ${EXIT_USAGE} wrong usage, ${EXIT_INFEASIBLE} no feasible plan, ${EXIT_TIME_OUT} time limit reached, ${EXIT_UNAVAILABLE} gateway failed, ${EXIT_SOFTWARE} failed.`,
  commands: {
    catalogue: {
      summary: 'list known GPUs and models with their sources',
      examples: '[--json]',
      flags: CATALOGUE,
      run: catalogueCommand,
    },
    plan: {
      summary: 'plan which model runs on which GPUs, with its parallelism and precision, and explain why',
      examples: '--inventory FILE|sinfo --workload FILE [flags] | --live --gateway URL [--key-file FILE] [flags]',
      flags: PLAN,
      run: planCommand,
    },
    compare: {
      summary:
        'compare the plan with two simple plans (GPUs divided by model size, and equally) in the same simulation',
      examples: '[flags of plan]',
      flags: COMPARE,
      run: compareCommand,
    },
    simulate: {
      summary: 'simulate one model on replicas of one kind',
      examples: '--model M --gpu G --rate R --input L --output L [flags]',
      flags: SIMULATE,
      run: simulateCommand,
    },
    validate: {
      summary: 'compare the simulator with published and own measurements',
      examples: '[--json] [--strict] [--fit]',
      flags: VALIDATE,
      run: validateCommand,
    },
    calibrate: {
      summary: 'calibrate a GPU and engine with a short load on an idle engine (10 minutes)',
      examples: '--url http://localhost:8000 --gpu G [flags]',
      flags: CALIBRATE,
      run: calibrateCommand,
    },
    watch: {
      summary:
        'plan for all nodes, again if a node is idle, a model has no replica, or the load differs by 20 % for 10 minutes',
      examples: '--gateway URL --key-file FILE [--plan FILE] [--workload FILE] [--every SECONDS] [flags]',
      flags: WATCH,
      run: (args, io) => watchCommand(args, io),
    },
    regions: {
      summary:
        'plan the share of requests for each region in each slot, and show the savings (changes nothing without --apply)',
      examples: '--gateway URL --key-file FILE [--apply] [--prices FILE] [--warm DIR] [flags]',
      flags: REGIONS,
      run: (args, io) => regionsCommand(args, io),
    },
  },
};
