/** A replica in a Slurm job of an ordinary user, in a partition with preemption and requeueing. */
import { chmodSync, closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import type { Cluster, Job } from '../slurm/cluster.ts';
import { cannotRun } from '../support/abilities.ts';
import type { Fault } from './faults.ts';
import { MODEL, Replica, type ReplicaOptions, TOKENS_MAX } from './replica.ts';

/** Nodes of `slurm-up` and all GPUs of each, so that a job that wants them displaces the other. */
const NODES = [
  ['n3', 'gpu:h100:2'],
  ['n4', 'gpu:rtx3090:4'],
] as const;
export const SLURM_REPLICAS = NODES.length;

const SUBMITTED_MS = 60_000;
/** Length of the preempting job: long enough to be seen, short enough to free the node again. */
const WINNER_SECONDS = 3;

export function whyNoSlurm(): string | undefined {
  return cannotRun('slurm');
}

export class SlurmReplica extends Replica {
  readonly #cluster: Cluster;
  readonly #tokenFile: string;
  #job: Job | undefined;

  constructor(cluster: Cluster, tokenFile: string, options: ReplicaOptions) {
    super(options);
    this.#cluster = cluster;
    this.#tokenFile = tokenFile;
  }

  get #place(): (typeof NODES)[number] {
    return NODES[this.options.index % NODES.length] ?? NODES[0];
  }

  override get running(): boolean {
    return this.#job !== undefined;
  }

  override async start(): Promise<void> {
    const { door, slots, tokensPerSecond } = this.options;
    const journal = join(this.#cluster.directory, 'out', `${this.name}-${this.journals.length}.jsonl`);
    closeSync(openSync(journal, 'a'));
    chmodSync(journal, 0o666);
    this.journals.push(journal);
    this.wanted = true;
    this.startedAt = Date.now();
    const engine = `--tokens ${TOKENS_MAX} --rate ${tokensPerSecond} --slots ${slots} --journal ${journal}`;
    const labels = `--label replica=${this.name}`;
    const line = await this.#cluster.agentLine('srun', door.url, this.#tokenFile, MODEL, labels, engine);
    const [node, gpus] = this.#place;
    this.#job = await this.#cluster.submit({
      sbatch: ['--partition=preempt', '-w', node, `--gres=${gpus}`],
      // A job that exits within the grace period has ended: to be requeued, its script must still run.
      script: `${line}\nsleep 600`,
    });
  }

  override async kill(): Promise<void> {
    this.wanted = false;
    this.#job?.cancel();
    await this.#job?.reaches(['CANCELLED', 'COMPLETED', 'FAILED', 'PREEMPTED'], SUBMITTED_MS).catch(() => undefined);
    this.#job = undefined;
  }

  /** A job of higher priority wants the same node. */
  async preempt(): Promise<void> {
    const [node, gpus] = this.#place;
    this.startedAt = Date.now();
    const winner = await this.#cluster.submit({
      sbatch: ['--partition=normal', '-w', node, `--gres=${gpus}`],
      script: `sleep ${WINNER_SECONDS}`,
    });
    await winner.reaches(['RUNNING', 'COMPLETED'], SUBMITTED_MS);
  }
}

export const PREEMPTION: Fault = {
  name: 'preempted by Slurm',
  weight: 3,
  outOfReach: false,
  suits: (replica) => replica instanceof SlurmReplica,
  strike: async (replica) => {
    if (replica instanceof SlurmReplica) await replica.preempt();
  },
};
