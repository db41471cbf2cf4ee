/** Watches the jobs of a run, and acts on `decideChain` and `decideCold`. */
import { jobOf, type LocalGateway } from '../gateway/local-gateway.ts';
import { runCluster, type StoredRun } from '../state/runs.ts';
import { HostGoneError, UpError } from '../up-error.ts';
import { type ColdModel, decideCold } from './cold-model.ts';
import { type ChainAction, type ChainNode, type ChainWish, decideChain } from './job-chain.ts';
import type { RunJob } from './run-job-list.ts';
import type { RunJobs } from './run-jobs.ts';

/** Intervals between two questions to Slurm, if a job serves and if none does. A login node is shared. */
const ASK_MS = 60_000;
const ASK_SOON_MS = 5_000;
/** After this many jobs in a row that ended before they served, no further one is submitted. */
const FAILURES_MAX = 3;
/** Pause after Slurm refused a job: a site may limit the number of waiting jobs. */
const REFUSED_MS = 60_000;

interface JobWatchOptions {
  run: StoredRun;
  jobs: RunJobs;
  gateway: Pick<LocalGateway, 'nodes' | 'drainNode'>;
  /** `--keep` */
  keep?: ChainWish | undefined;
  /** `--cold` */
  cold?: { model: Pick<ColdModel, 'demand' | 'report'>; idleMs: number } | undefined;
  /** How long the first job needed to serve; undefined: it was found, or there is none yet. */
  readyMs?: number | undefined;
  /** Shows the user what happened. */
  tell(line: string): void;
  now(): number;
}

export class JobWatch {
  readonly #options: JobWatchOptions;
  #readyMs: number | undefined;
  /** When the last job was submitted; undefined once it serves. */
  #submittedMs: number | undefined;
  /** The jobs that have not ended, as Slurm listed them last. */
  #alive: readonly RunJob[] = [];
  #askedMs = Number.NEGATIVE_INFINITY;
  /** The jobs that served at the last look, as one text. */
  #serving = '';
  /** Ids of jobs that have served, of jobs that drain, and of jobs with a failure that was shown; each at most a few a day. */
  readonly #served = new Set<string>();
  readonly #draining = new Set<string>();
  readonly #failed = new Set<string>();
  /** Number of failures since a job began to serve. */
  #failures = 0;
  /** No job is submitted before this time. */
  #submitsFromMs = 0;
  /** False until the first list of jobs, which may have failures of earlier commands. */
  #hasListed = false;

  constructor(options: JobWatchOptions) {
    this.#options = options;
    this.#readyMs = options.readyMs;
  }

  /** @throws UpError if the last job has ended and none follows */
  async look(): Promise<void> {
    const { gateway, run, keep, cold, now } = this.#options;
    const found = await gateway.nodes(runCluster(run.value)).catch(() => undefined);
    if (found === undefined) return;
    const nodes = found.flatMap((node): ChainNode[] => {
      const { session, state, models } = node;
      const job = jobOf(node);
      const isReady = state === 'SERVING' && models.some((model) => model.state === 'ready');
      return job === undefined ? [] : [{ session, job, isReady: isReady && !this.#draining.has(job) }];
    });
    const ready = nodes.flatMap(({ job, isReady }) => (isReady ? [job] : []));
    this.#noteServing(ready);
    const changed = ready.join() !== this.#serving || !this.#hasListed;
    this.#serving = ready.join();
    // A cold model without a job needs no question to Slurm.
    const asks = keep !== undefined || (ready.length === 0 && (cold === undefined || this.#alive.length > 0));
    const due = asks && now() - this.#askedMs >= (ready.length === 0 ? ASK_SOON_MS : ASK_MS);
    if (changed || due || ready.length > 1 || this.#coldActions(nodes).length > 0) await this.#act(nodes);
    cold?.model.report(this.#alive.at(-1), ready.length > 0, this.#readyMs);
  }

  #coldActions(nodes: readonly ChainNode[]): ChainAction[] {
    const { cold, now } = this.#options;
    if (cold === undefined || now() < this.#submitsFromMs) return [];
    return decideCold({ jobs: this.#alive, nodes, demand: cold.model.demand, idleMs: cold.idleMs });
  }

  #noteServing(ready: readonly string[]): void {
    const { run, tell, cold, now } = this.#options;
    for (const job of ready) {
      if (this.#served.has(job)) continue;
      if (this.#served.size > 0 || cold !== undefined) tell(`job ${job} serves the model now`);
      this.#served.add(job);
      this.#failures = 0;
      if (this.#submittedMs !== undefined) this.#readyMs = now() - this.#submittedMs;
      this.#submittedMs = undefined;
      // `otela logs` and `otela ls` show the newest job that serves.
      run.update({ job });
    }
  }

  async #act(nodes: readonly ChainNode[]): Promise<void> {
    const { jobs, keep, cold, now } = this.#options;
    this.#askedMs = now();
    const listed = await jobs.list().catch((error: unknown) => {
      if (error instanceof HostGoneError) throw error;
      return undefined;
    });
    if (listed === undefined) return;
    for (const { id, state, reason } of listed) if (state === 'ended') await this.#noteEnd(id, reason);
    this.#hasListed = true;
    this.#alive = listed.filter(({ state }) => state !== 'ended');
    const mayFollow = this.#failures < FAILURES_MAX;
    const wish = mayFollow ? keep : undefined;
    const chain = decideChain({ jobs: listed, nodes, nowMs: now(), wish, readyMs: this.#readyMs });
    for (const action of [...chain, ...(mayFollow ? this.#coldActions(nodes) : [])]) await this.#do(action);
    const isOver = keep === undefined ? cold === undefined : now() >= keep.untilMs;
    if (this.#alive.length === 0 && (isOver || !mayFollow)) throw this.#over(listed.at(-1)?.reason ?? 'ended');
  }

  async #noteEnd(job: string, state: string): Promise<void> {
    if (this.#served.has(job) || this.#failed.has(job)) return;
    this.#failed.add(job);
    if (!this.#hasListed || state.startsWith('CANCELLED')) return;
    this.#failures += 1;
    this.#options.tell((await this.#options.jobs.failure(job, state)).message);
  }

  async #do(action: ChainAction): Promise<void> {
    const { jobs, gateway, tell } = this.#options;
    switch (action.kind) {
      case 'submit':
        return this.#submit(action.after);
      case 'cancel':
        await jobs.cancel([action.job]);
        return tell(`job ${action.job} is cancelled, because no request waits`);
      case 'release':
        await jobs.release(action.job);
        return tell(`job ${action.job} may start now, because the one before it has ended`);
      case 'drain':
        await gateway.drainNode(action.session).then(
          () => {
            this.#draining.add(action.job);
            tell(`job ${action.job} finishes its requests and ends`);
          },
          // The node is gone, or the next look tries again.
          () => {},
        );
    }
  }

  async #submit(after: { job: string; minutes: number } | undefined): Promise<void> {
    const { jobs, tell, now } = this.#options;
    if (now() < this.#submitsFromMs) return;
    try {
      const job = await jobs.submit(after);
      // The next look lists the jobs again.
      this.#askedMs = Number.NEGATIVE_INFINITY;
      if (after !== undefined) return;
      this.#submittedMs = now();
      tell(`job ${job} is submitted`);
    } catch (error) {
      if (!(error instanceof UpError)) throw error;
      this.#submitsFromMs = now() + REFUSED_MS;
      // A successor is not urgent: a job serves meanwhile.
      if (after === undefined) this.#failures += 1;
      tell(`The next job was not submitted. ${error.message}`);
    }
  }

  #over(state: string): UpError {
    const { run } = this.#options;
    return new UpError(
      `job ${run.value.job} has ended (${state}).`,
      'The same command starts the next one. A longer time limit is --time; --keep 3d lets jobs follow each other.',
    );
  }
}
