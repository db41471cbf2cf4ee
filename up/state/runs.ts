/** A run is a model that `otela up` serves from a host. */
import { randomBytes } from 'node:crypto';
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { readPrivateFile, writePrivateFile } from '../../node/private-file.ts';
import { parseJson } from '../../shared/text/parse-json.ts';
import { isLocked } from './run-lock.ts';

/** Maximum number of runs; each has a job and a connection. */
export const RUNS_MAX = 32;

const runSchema = z.object({
  /** Part of the job's name and of the directory on the host. */
  id: z.string().regex(/^[a-z0-9]{8}$/),
  host: z.string(),
  model: z.string(),
  started: z.iso.datetime(),
  /** The job's id in the batch system; absent before it is submitted. */
  job: z.string().optional(),
  partition: z.string().optional(),
  /** `none`: the host has no batch system, and the job is a process. Absent: Slurm. */
  batch: z.literal('none').optional(),
  /** A compute node of the partition: the relay listens at the address toward it. */
  toward: z.string().optional(),
  /** Id of the join token at the gateway. */
  token: z.string().optional(),
  /** True while the job waits for its token. */
  waits: z.boolean().optional(),
});
export type Run = z.infer<typeof runSchema>;

/** Directory of a run below the home directory of the host. */
export const runDirectory = ({ id }: Pick<Run, 'id'>): string => `.otela/run/${id}`;
/** Content of a file of the run until otela up has written it. */
export const WAITING = 'waiting';
/** The cluster's name of a run's nodes at the gateway. */
export const runCluster = ({ id }: Pick<Run, 'id'>): string => `up-${id}`;

export class Runs {
  readonly #directory: string;

  constructor(state: string) {
    this.#directory = join(state, 'runs');
  }

  list(): Run[] {
    return readdirSync(this.#directory)
      .filter((name) => name.endsWith('.json'))
      .slice(0, RUNS_MAX)
      .flatMap((name) => runSchema.safeParse(parseJson(readPrivateFile(join(this.#directory, name)))).data ?? [])
      .toSorted((a, b) => a.started.localeCompare(b.started));
  }

  find(host: string, model: string): Run | undefined {
    return this.list().find((run) => run.host === host && run.model === model);
  }

  create(host: string, model: string, now: Date): Run {
    return this.save({ id: randomBytes(4).toString('hex'), host, model, started: now.toISOString() });
  }

  save(run: Run): Run {
    writePrivateFile(join(this.#directory, `${run.id}.json`), `${JSON.stringify(run)}\n`);
    return run;
  }

  remove({ id }: Run): void {
    rmSync(join(this.#directory, `${id}.json`), { force: true });
  }

  socketOf({ id }: Run): string {
    return join(this.#directory, `${id}.sock`);
  }

  /** True if a process serves another run of the same host, and so uses the same connection of ssh. */
  async sharesHost({ id, host }: Run): Promise<boolean> {
    const others = this.list().filter((run) => run.host === host && run.id !== id);
    return (await Promise.all(others.map((run) => isLocked(this.socketOf(run))))).includes(true);
  }
}

/** A run in its file. */
export class StoredRun {
  readonly #runs: Runs;
  #value: Run;

  constructor(runs: Runs, value: Run) {
    this.#runs = runs;
    this.#value = value;
  }

  get value(): Run {
    return this.#value;
  }

  sharesHost(): Promise<boolean> {
    return this.#runs.sharesHost(this.#value);
  }

  update(change: Partial<Run>): void {
    this.#value = this.#runs.save({ ...this.#value, ...change });
  }
}
