/** A batch system in memory. It can lie, stall and lose jobs, according to a script of faults. */
import { type Launcher, LauncherError, type Submission } from '../../../../factory/launchers/launcher.ts';
import type { Capacity, ListedJob } from '../../../../node/batch-systems/batch-system.ts';

export interface SimulatedJob {
  id: string;
  name: string;
  pool: string;
  gpus: number;
  state: 'pending' | 'running' | 'ended';
  submitted: number;
  began?: number;
  ended?: number;
  how?: ListedJob['ended'];
  /** The time from which squeue lists the job. */
  shows: number;
  /** The time at which TERM was sent. */
  cancelled?: number;
}

/** A fault during a span of time. */
export type Fault =
  /** No call is answered. */
  | 'down'
  /** sbatch hangs: a submission is accepted, but not answered. */
  | 'stalls'
  /** A submission is answered with an id, but lost. */
  | 'loses'
  /** squeue returns an empty list. */
  | 'empty'
  /** squeue omits every second job. */
  | 'omits'
  /** squeue returns the state of a minute ago. */
  | 'stale'
  /** sbatch refuses. */
  | 'refuses'
  /** sinfo shows no idle GPU. */
  | 'hides'
  /** No job begins, because others have priority. */
  | 'holds';

export interface SimulatedClusterOptions {
  id: string;
  pool: string;
  random: () => number;
  /** GPUs that this user may use now. */
  free(now: number): number;
  faultAt(now: number): Fault | undefined;
  /** How long jobs run if they are not ended; Infinity: until their time limit. */
  lifeMs(): number;
  limitMs: number;
  /** Interval of the scheduler's passes over its queue. */
  everyMs: number;
  /** Delay between a submission and its appearance in squeue. */
  lagMs(): number;
}

const STALE_MS = 60_000;
const KILL_AFTER_MS = 30_000;

export class SimulatedCluster implements Launcher {
  readonly kind = 'slurm';
  readonly jobId = '$ID';
  readonly seen = 'recorded';
  readonly jobs: SimulatedJob[] = [];
  /** The time and the number of jobs of each call of sbatch. */
  readonly asked: { at: number; count: number }[] = [];
  /** Jobs that were cancelled while they ran. */
  readonly killed: { id: string; at: number }[] = [];
  now = 0;
  submitted = 0;
  preempted = 0;
  #next = 1;
  #looked = 0;
  #lives = new Map<string, number>();
  readonly #past: { at: number; jobs: ListedJob[] }[] = [];
  readonly #options: SimulatedClusterOptions;

  constructor(options: SimulatedClusterOptions) {
    this.#options = options;
  }

  get id(): string {
    return this.#options.id;
  }

  /** The gateway's and the factory's key of the job. */
  keyOf({ id }: Pick<SimulatedJob, 'id'>): string {
    return `${this.id}/${id}`;
  }

  /** GPUs that a job could get now. */
  idle(): number {
    return Math.max(0, this.#options.free(this.now) - this.used());
  }

  get fault(): Fault | undefined {
    return this.#options.faultAt(this.now);
  }

  alive(): SimulatedJob[] {
    return this.jobs.filter(({ state }) => state !== 'ended');
  }

  running(): SimulatedJob[] {
    return this.jobs.filter(({ state }) => state === 'running');
  }

  end(id: string, how: ListedJob['ended']): void {
    const job = this.jobs.find((one) => one.id === id);
    if (job === undefined || job.state === 'ended') return;
    Object.assign(job, { state: 'ended', ended: this.now, how });
    if (how === 'preempted') this.preempted += 1;
  }

  /** Advances time to `now`. */
  step(now: number): void {
    this.now = now;
    const { free, limitMs, everyMs } = this.#options;
    for (const job of this.running()) {
      const began = job.began ?? now;
      if (job.cancelled !== undefined && now - job.cancelled >= KILL_AFTER_MS) this.end(job.id, 'cancelled');
      else if (now - began >= limitMs) this.end(job.id, 'time');
      else if (now - began >= (this.#lives.get(job.id) ?? Number.POSITIVE_INFINITY)) this.end(job.id, 'node');
    }
    // The newest are preempted first, as by default in Slurm.
    for (const job of this.running().toReversed()) if (this.used() > free(now)) this.end(job.id, 'preempted');
    if (now - this.#looked < everyMs) return;
    this.#looked = now;
    for (const job of this.fault === 'holds' ? [] : this.jobs)
      if (job.state === 'pending' && job.cancelled === undefined && this.used() + job.gpus <= free(now)) {
        Object.assign(job, { state: 'running', began: now });
        this.#lives.set(job.id, this.#options.lifeMs());
      }
    this.#past.push({ at: now, jobs: this.#told() });
    if (this.#past.length > 100) this.#past.shift();
    // A controller forgets ended jobs (MinJobAge).
    while (this.jobs.length > 2_000 && this.jobs[0]?.state === 'ended') this.jobs.shift();
  }

  used(): number {
    return this.running().reduce((sum, { gpus }) => sum + gpus, 0);
  }

  async submit({ name, count, pool, gpus }: Submission): Promise<string[]> {
    this.asked.push({ at: this.now, count });
    const fault = this.#options.faultAt(this.now);
    if (fault === 'down') throw new LauncherError('unclear', 'Unable to contact slurm controller');
    if (fault === 'refuses') throw new LauncherError('refused', 'Job violates accounting/QOS policy');
    const ids = Array.from({ length: count }, () => String(this.#next++));
    if (fault === 'loses') return ids;
    this.submitted += count;
    for (const id of ids)
      this.jobs.push({
        id,
        name,
        pool: pool.name,
        gpus,
        state: 'pending',
        submitted: this.now,
        shows: this.now + this.#options.lagMs(),
      });
    if (fault === 'stalls') throw new LauncherError('unclear', 'sbatch did not answer within 30 s');
    return ids;
  }

  async list(prefix: string): Promise<ListedJob[]> {
    const fault = this.#options.faultAt(this.now);
    if (fault === 'down') throw new LauncherError('unreachable', 'Unable to contact slurm controller');
    if (fault === 'empty') return [];
    const told =
      fault === 'stale' ? (this.#past.findLast(({ at }) => this.now - at >= STALE_MS)?.jobs ?? []) : this.#told();
    const ours = told.filter(({ name }) => name.startsWith(prefix));
    return fault === 'omits' ? ours.filter((_, n) => n % 2 === 0) : ours;
  }

  async capacity(): Promise<Capacity[]> {
    return [{ pool: this.#options.pool, idle: this.fault === 'hides' ? 0 : this.idle() }];
  }

  async cancel(ids: readonly string[]): Promise<void> {
    if (this.#options.faultAt(this.now) === 'down')
      throw new LauncherError('unreachable', 'Unable to contact slurm controller');
    for (const id of ids) {
      const job = this.jobs.find((one) => one.id === id);
      if (job?.state === 'pending') this.end(id, 'cancelled');
      else if (job?.state === 'running' && job.cancelled === undefined) {
        job.cancelled = this.now;
        this.killed.push({ id, at: this.now });
      }
    }
  }

  async check(): Promise<{ ok: boolean; text: string }> {
    return { ok: true, text: '' };
  }

  #told(): ListedJob[] {
    return this.jobs
      .filter(({ shows, ended }) => shows <= this.now && (ended === undefined || this.now - ended < 300_000))
      .map(({ id, name, state, how }) => ({
        id,
        name,
        state,
        ...(state === 'ended' && how !== undefined ? { ended: how } : {}),
      }));
  }
}
