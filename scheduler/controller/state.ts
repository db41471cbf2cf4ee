import { closeSync, openSync, readFileSync, renameSync, unlinkSync, writeFileSync, writeSync } from 'node:fs';
import * as z from 'zod';
import { parseAs } from '../catalogue/catalogue.ts';
import { SchedulerError } from '../errors.ts';
import { parallelismSchema } from '../roofline/parallelism-schema.ts';

const placement = z.object({
  model: z.string(),
  pool: z.string(),
  tp: z.number().int().positive(),
  spread: parallelismSchema.exactOptional(),
  replicas: z.number().int().nonnegative(),
});

const stateSchema = z.object({
  version: z.literal(1),
  /** Replicas that this controller started and that had not ended when it looked last. */
  jobs: z
    .array(
      z.object({
        /** Of Slurm's job, digits; or of the deployment. */
        id: z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/),
        model: z.string(),
        pool: z.string(),
        tp: z.number().int().positive(),
        spread: parallelismSchema.exactOptional(),
        started_at: z.string(),
        seen: z.boolean(),
      }),
    )
    .max(100_000),
  /** What was wanted now, and before that: `--rollback` goes back to it. */
  wanted: z.array(placement).max(100_000),
  before: z.array(placement).max(100_000),
  /** Jobs of a placement that ended unasked, in a row. */
  failures: z
    .array(
      z.object({
        model: z.string(),
        pool: z.string(),
        tp: z.number().int().positive(),
        spread: parallelismSchema.exactOptional(),
        count: z.number().int().positive(),
      }),
    )
    .max(10_000),
  /** Requests/s by model that the last plan was made for. */
  planned_for: z.record(z.string(), z.number()),
});
export type ControllerState = z.infer<typeof stateSchema>;

export const EMPTY_STATE: ControllerState = {
  version: 1,
  jobs: [],
  wanted: [],
  before: [],
  failures: [],
  planned_for: {},
};

/** A file that is not there is an empty state; one that cannot be read is an error: forgetting jobs would start them twice. */
export function readState(path: string): ControllerState {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return EMPTY_STATE;
    throw new SchedulerError(
      'bad_input',
      `cannot read the controller's state ${path}: ${cause instanceof Error ? cause.message : String(cause)}`,
      { cause },
    );
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new SchedulerError(
      'bad_input',
      `the controller's state ${path} is damaged; compare it with squeue and mend or remove it`,
      { cause },
    );
  }
  return parseAs(stateSchema, value, path);
}

/** All or nothing: a controller that dies while it writes leaves the old state. */
export function writeState(path: string, state: ControllerState): void {
  const unfinished = `${path}.${process.pid}`;
  writeFileSync(unfinished, `${JSON.stringify(state, null, 2)}\n`, { mode: 0o600 });
  renameSync(unfinished, path);
}

/** Two controllers on one state would start everything twice. Returns what gives the lock back. */
export function lockState(path: string): () => void {
  const lock = `${path}.lock`;
  for (const attempt of [1, 2]) {
    try {
      const file = openSync(lock, 'wx', 0o600);
      writeSync(file, String(process.pid));
      closeSync(file);
      return () => unlinkSync(lock);
    } catch (cause) {
      if (!(cause instanceof Error && 'code' in cause && cause.code === 'EEXIST')) {
        throw new SchedulerError(
          'bad_input',
          `cannot lock ${path}: ${cause instanceof Error ? cause.message : String(cause)}`,
          { cause },
        );
      }
      const owner = ownerOf(lock);
      if (attempt === 2 || owner === undefined || isAlive(owner)) {
        throw new SchedulerError(
          'busy',
          `another controller (process ${owner ?? '?'}) uses ${path}; if it is gone, remove ${lock}`,
        );
      }
      unlinkSync(lock);
    }
  }
  throw new SchedulerError('busy', `${lock} cannot be had`);
}

function ownerOf(lock: string): number | undefined {
  try {
    const pid = Number(readFileSync(lock, 'utf8'));
    return Number.isInteger(pid) && pid > 0 ? pid : undefined;
  } catch {
    return undefined;
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}
