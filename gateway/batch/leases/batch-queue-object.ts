import type { NodeContexts } from '../../../shared/batch/function-context.ts';
import { contextWarmth } from '../../../shared/batch/function-context.ts';
import { nextBatch, nextFunctionBatch, type QueuedBatch } from '../../../shared/batch/next-batch.ts';
import { leaseRank, type NodeTier, offerDelayMs } from '../../../shared/batch/node-lease-rank.ts';
import { DemandNotifier } from '../../factory/demand-notifier.ts';
import type { BacklogDemand } from '../../factory/demand-signals.ts';
import { GatewayObject } from '../../platform/gateway-object.ts';
import type { FunctionLeaseRequest } from './lease-lines.ts';
import { type ContextCounts, NodeContextTable } from './node-contexts.ts';

/** Maximum batches in one queue. */
const BATCHES_MAX = 10_000;
/** Maximum nodes that wait for a batch concurrently. */
const WAITING_MAX = 4_096;
/** Maximum busy nodes that are reported to an autoscaler. */
const NODES_MAX = 2_000;

interface Entry {
  contender: QueuedBatch;
  until: number;
  /** Sessions that currently run lines of the batch. */
  nodes: readonly string[];
  /** When a node last leased lines of the batch, or when the batch first needed a node; milliseconds. */
  servedMs: number;
}

interface WaitingNode {
  tier: NodeTier;
  held: NodeContexts | undefined;
  /** Owners that may run functions on the node; null: all. */
  owners: readonly string[] | null;
  /** Batches with lines that the node may not run. */
  forbidden: readonly string[];
  wake(): void;
}

function rankOf({ tier, held }: WaitingNode, context: string | undefined): number {
  const warmth = held === undefined || context === undefined ? 'ready' : contextWarmth(context, held);
  return leaseRank(warmth, tier);
}

/**
 * The queue of batches that need nodes of one model, or that run functions. Only in memory: each batch repeats its
 * offer every few seconds while it has open lines, and an offer that is not repeated is dropped.
 */
export class BatchQueueObject extends GatewayObject {
  readonly #batches = new Map<string, Entry>();
  readonly #waiting = new Set<WaitingNode>();
  readonly #contexts = new NodeContextTable();
  /** Notifies autoscalers of the demand, because they may have to start nodes for these batches. */
  readonly #notifier = new DemandNotifier({
    env: this.env,
    clock: this.ctx.clock,
    tell: (factory) => factory.backlog(this.ctx.name, this.#backlog()),
    lasts: () => this.#batches.size > 0,
  });

  /**
   * Adds or renews the offer of a batch. Returns on how many nodes its function is; null: it has none.
   * @param nodes sessions that run lines of the batch
   */
  offer(queued: QueuedBatch, until: number, nodes: readonly string[] = []): ContextCounts | null {
    this.#add(queued, until, nodes);
    return queued.context === undefined ? null : this.#contexts.counts(queued.context, nodes, this.ctx.clock.now());
  }

  /** Number of waiting nodes that could run lines of a batch with a function. */
  idle({ id, context = '', project }: QueuedBatch): number {
    const can = ({ held, owners, forbidden }: WaitingNode) =>
      held !== undefined &&
      !held.broken.includes(context) &&
      owners?.includes(project) !== false &&
      !forbidden.includes(id);
    return [...this.#waiting].filter(can).length;
  }

  /** The contexts of a node that runs functions; null: it has not asked for lines recently. */
  contextsOf(session: string): NodeContexts | null {
    return this.#contexts.of(session, this.ctx.clock.now()) ?? null;
  }

  #add(queued: QueuedBatch, until: number, nodes: readonly string[]): void {
    const known = this.#batches.get(queued.id);
    if (known === undefined && this.#batches.size >= BATCHES_MAX) return;
    this.#batches.set(queued.id, {
      contender: queued,
      until,
      nodes,
      servedMs: known?.servedMs ?? this.ctx.clock.now(),
    });
    if (known === undefined) this.#notifier.news();
    if (queued.waiting === 0 && queued.late !== true) return;
    const best = this.#bestRank(queued, nodes);
    for (const node of [...this.#waiting]) this.#wake(node, queued, best);
  }

  /**
   * Wakes a waiting node. The best nodes are woken without a delay, so that they ask for lines before other nodes do.
   * @param best rank of the best known node
   */
  #wake(node: WaitingNode, { context }: QueuedBatch, best: number): void {
    const delayMs = offerDelayMs(rankOf(node, context) - best);
    if (delayMs <= 0) node.wake();
    else this.ctx.clock.after(delayMs, node.wake);
  }

  /**
   * The rank of the best node that waits, or that has the batch's context and is busy now. Without it, the first call
   * of a function would wait a second for nodes that do not exist.
   */
  #bestRank({ context }: QueuedBatch, nodes: readonly string[]): number {
    const ranks = [...this.#waiting].map((node) => rankOf(node, context));
    if (context !== undefined) {
      const { ready, loading, stored } = this.#contexts.counts(context, nodes, this.ctx.clock.now());
      if (ready > 0) ranks.push(leaseRank('ready', 'volatile'));
      if (loading > 0) ranks.push(leaseRank('loading', 'volatile'));
      if (stored > 0) ranks.push(leaseRank('stored', 'volatile'));
    }
    return Math.min(...ranks);
  }

  /**
   * Returns the id of the batch from which a node gets lines next.
   * @param skip batches that had nothing for this node just now
   */
  next(skip: readonly string[]): string | null {
    const now = this.ctx.clock.now();
    const waitingBatches = this.#waitingBatches(skip, now);
    // In a batch without waiting lines, a node may be late with its chunk. A second node can then run the same chunk.
    const found = nextBatch(waitingBatches, now) ?? waitingBatches.find(({ leased }) => leased > 0);
    return found?.id ?? null;
  }

  /** @param session the node that asks. Nodes are shared between projects, and this node is free. */
  nextFunction(skip: readonly string[], { owners, held }: FunctionLeaseRequest, session = ''): string | null {
    const now = this.ctx.clock.now();
    if (session !== '') this.#contexts.set(session, held, now);
    const waitingBatches = this.#waitingBatches(skip, now).filter(
      ({ project }) => owners === undefined || owners.includes(project),
    );
    const served = (id: string) => this.#batches.get(id)?.servedMs ?? now;
    const late = () => waitingBatches.find(({ leased, context = '' }) => leased > 0 && !held.broken.includes(context));
    const nodesOf = (project: string) => this.#nodesOf(project, session);
    return (nextFunctionBatch(waitingBatches, held, now, served, nodesOf) ?? late())?.id ?? null;
  }

  /** Number of nodes that run batches of a project, without this one. */
  #nodesOf(project: string, without: string): number {
    const own = [...this.#batches.values()].filter(({ contender }) => contender.project === project);
    const sessions = new Set(own.flatMap(({ nodes }) => nodes));
    sessions.delete(without);
    return sessions.size;
  }

  #waitingBatches(skip: readonly string[], now: number): QueuedBatch[] {
    this.#forget(now);
    return [...this.#batches.values()].map(({ contender: queued }) => queued).filter(({ id }) => !skip.includes(id));
  }

  #forget(now: number): void {
    for (const [id, { until }] of this.#batches) if (until <= now) this.#batches.delete(id);
  }

  #backlog(): BacklogDemand {
    const now = this.ctx.clock.now();
    this.#forget(now);
    const entries = [...this.#batches.values()];
    const sum = (of: (queued: QueuedBatch) => number) => entries.reduce((all, one) => all + of(one.contender), 0);
    const ends = Math.min(...entries.map(({ contender: queued }) => queued.expiresMs));
    return {
      lines: sum(({ waiting, leased }) => waiting + leased),
      deadlineMs: entries.length === 0 ? 0 : Math.max(0, ends - now),
      linesPerS: sum(({ linesPerS }) => linesPerS),
      nodes: [...new Set(entries.flatMap(({ nodes }) => nodes))].slice(0, NODES_MAX),
    };
  }

  /** Records a lease until the batch itself reports it in its next offer. */
  leased(id: string, lines: number, session: string): void {
    const entry = this.#batches.get(id);
    if (entry === undefined) return;
    const { contender: queued } = entry;
    const waiting = Math.max(0, queued.waiting - lines);
    entry.contender = { ...queued, waiting, leased: queued.leased + lines };
    entry.servedMs = this.ctx.clock.now();
    // The node no longer counts for the batches that it ran before. Otherwise several nodes would change to the same
    // project within the seconds until the next offers.
    for (const other of this.#batches.values()) other.nodes = other.nodes.filter((node) => node !== session);
    entry.nodes = [...entry.nodes, session];
  }

  /**
   * Resolves when a batch offers lines, or after `ms`.
   * @param held contexts of a node that runs functions; null: the node has an engine
   * @param owners owners that may run functions on it; null: all
   * @param forbidden batches with lines that it may not run
   */
  wait(
    ms: number,
    tier: NodeTier,
    held: NodeContexts | null,
    owners: readonly string[] | null = null,
    forbidden: readonly string[] = [],
  ): Promise<void> {
    if (this.#waiting.size >= WAITING_MAX) return Promise.resolve();
    return new Promise((resolve) => {
      const node: WaitingNode = {
        tier,
        held: held ?? undefined,
        owners,
        forbidden,
        wake: () => {
          this.#waiting.delete(node);
          cancel();
          resolve();
        },
      };
      const cancel = this.ctx.clock.after(ms, node.wake);
      this.#waiting.add(node);
    });
  }
}
