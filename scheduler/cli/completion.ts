/** `otela-plan completion`: from the flags that each command parses. */
import type { ParseArgsOptionsConfig } from 'node:util';
import { completionScript, isShell, SHELLS, type Taken } from '../../shared/terminal/completion.ts';
import { SchedulerError } from '../errors.ts';
import { OBJECTIVES } from '../solver/problem.ts';
import { FLAGS as APPLY } from './apply.ts';
import { FLAGS as CALIBRATE } from './calibrate.ts';
import { FLAGS as CATALOGUE } from './catalogue.ts';
import { FLAGS as COMPARE } from './compare.ts';
import { EXIT_DONE } from './exit.ts';
import { summaryOf } from './help.ts';
import type { Io } from './io.ts';
import { FLAGS as PLAN } from './plan.ts';
import { SIMULATE_FLAGS } from './simulate.ts';
import { FLAGS as VALIDATE } from './validate.ts';
import { FLAGS as WATCH } from './watch.ts';

const FLAGS: Readonly<Record<string, ParseArgsOptionsConfig>> = {
  catalogue: CATALOGUE,
  plan: PLAN,
  compare: COMPARE,
  simulate: SIMULATE_FLAGS,
  validate: VALIDATE,
  calibrate: CALIBRATE,
  apply: APPLY,
  watch: WATCH,
};

/** Values that a shell can know; all others are numbers and names. */
const TAKES: Readonly<Record<string, Taken>> = {
  ...Object.fromEntries(
    [
      'gpus',
      'models',
      'calibration',
      'measured',
      'planner',
      'inventory',
      'workload',
      'key-file',
      'state',
      'svg',
      'trace',
      'slurm',
    ].map((name) => [name, 'file' as const]),
  ),
  objective: OBJECTIVES,
  weights: ['bf16', 'fp8', 'int8', 'int4'],
  policy: ['weighted', 'random', 'round-robin', 'least-loaded'],
};

export function completionCommand([shell, ...rest]: readonly string[], io: Io): number {
  if (!isShell(shell) || rest.length > 0)
    throw new SchedulerError('usage', `which shell? otela-plan completion ${SHELLS.join('|')}`);
  const commands = Object.entries(FLAGS).map(([name, options]) => ({
    name,
    summary: summaryOf(name),
    flags: [
      ...Object.entries(options).map(([flag, { type }]) => ({
        name: flag,
        ...(type === 'boolean' ? {} : { takes: TAKES[flag] ?? 'word' }),
      })),
      { name: 'help' },
    ],
  }));
  const extra = { name: 'completion', summary: summaryOf('completion'), takes: SHELLS, flags: [] };
  io.out(completionScript(shell, { name: 'otela-plan', commands: [...commands, extra] }).trimEnd());
  return EXIT_DONE;
}
