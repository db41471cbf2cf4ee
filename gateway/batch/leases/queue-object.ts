import type { HeldContexts } from '../../../shared/batch/function.ts';
import { warmthOf } from '../../../shared/batch/function.ts';
import { leaseRank, type Tier, toldAfterMs } from '../../../shared/batch/preference.ts';
import { type Contender, nextBatch, nextFunctionBatch } from '../../../shared/batch/share.ts';
import type { BacklogSign } from '../../factory/demand-signs.ts';
import { Teller } from '../../factory/teller.ts';
import { GatewayObject } from '../../gateway-object.ts';
import type { FunctionAsk } from './leasing.ts';

/** Batches that want nodes of one model. */
const CONTENDERS_MAX = 10_000;
/** Nodes that wait for a batch at once. */
const WAITING_MAX = 4_096;
/** Nodes at work that a factory hears of. */
const NODES_MAX = 2_000;

interface Entry {
  contender: Contender;
  until: number;
  /** Sessions that run lines of it. */
  nodes: readonly string[];
  /** When a node took lines of it, or when it first asked for one. */
  servedMs: number;
}

interface WaitingNode {
  tier: Tier;
  held: HeldContexts | undefined;
  wake(): void;
}

/**
 * Which batches want nodes of one model, or to run a function. In memory: each batch says so every few seconds while it has open lines, and
 * what it does not repeat is forgotten.
 */
export class BatchQueueObject extends GatewayObject {
  readonly #contenders = new Map<string, Entry>();
  readonly #waiting = new Set<WaitingNode>();
  /** A factory may have to start nodes for these batches. */
  readonly #teller = new Teller({
    env: this.env,
    clock: this.ctx.clock,
    tell: (factory) => factory.backlog(this.ctx.name, this.#backlog()),
    lasts: () => this.#contenders.size > 0,
  });

  /** @param nodes sessions that run lines of it */
  offer(contender: Contender, until: number, nodes: readonly string[] = []): void {
    const known = this.#contenders.get(contender.id);
    if (known === undefined && this.#contenders.size >= CONTENDERS_MAX) return;
    this.#contenders.set(contender.id, { contender, until, nodes, servedMs: known?.servedMs ?? this.ctx.clock.now() });
    if (known === undefined) this.#teller.news();
    if (contender.waiting === 0 && contender.late !== true) return;
    for (const node of [...this.#waiting]) this.#tell(node, contender);
  }

  /** Nodes that are better placed hear first, and have asked before the others hear. */
  #tell({ tier, held, wake }: WaitingNode, { context }: Contender): void {
    const warmth = held === undefined || context === undefined ? 'ready' : warmthOf(context, held);
    const delayMs = toldAfterMs(leaseRank(warmth, tier));
    if (delayMs === 0) wake();
    else this.ctx.clock.after(delayMs, wake);
  }

  /** @param skip batches that had nothing for this node just now */
  next(skip: readonly string[]): string | null {
    const now = this.ctx.clock.now();
    const left = this.#left(skip, now);
    // A batch without a waiting line may still have a late chunk to run a second time.
    const found = nextBatch(left, now) ?? left.find(({ leased }) => leased > 0);
    return found?.id ?? null;
  }

  nextFunction(skip: readonly string[], { owners, held }: FunctionAsk): string | null {
    const now = this.ctx.clock.now();
    const left = this.#left(skip, now).filter(({ project }) => owners === undefined || owners.includes(project));
    const served = (id: string) => this.#contenders.get(id)?.servedMs ?? now;
    const late = () => left.find(({ leased, context = '' }) => leased > 0 && !held.broken.includes(context));
    return (nextFunctionBatch(left, held, now, served) ?? late())?.id ?? null;
  }

  #left(skip: readonly string[], now: number): Contender[] {
    this.#forget(now);
    return [...this.#contenders.values()].map(({ contender }) => contender).filter(({ id }) => !skip.includes(id));
  }

  #forget(now: number): void {
    for (const [id, { until }] of this.#contenders) if (until <= now) this.#contenders.delete(id);
  }

  #backlog(): BacklogSign {
    const now = this.ctx.clock.now();
    this.#forget(now);
    const entries = [...this.#contenders.values()];
    const sum = (of: (contender: Contender) => number) => entries.reduce((all, one) => all + of(one.contender), 0);
    const ends = Math.min(...entries.map(({ contender }) => contender.expiresMs));
    return {
      lines: sum(({ waiting, leased }) => waiting + leased),
      deadlineMs: entries.length === 0 ? 0 : Math.max(0, ends - now),
      linesPerS: sum(({ linesPerS }) => linesPerS),
      nodes: [...new Set(entries.flatMap(({ nodes }) => nodes))].slice(0, NODES_MAX),
    };
  }

  /** What a lease took, until the batch says it itself. */
  leased(id: string, lines: number): void {
    const entry = this.#contenders.get(id);
    if (entry === undefined) return;
    const { contender } = entry;
    const waiting = Math.max(0, contender.waiting - lines);
    entry.contender = { ...contender, waiting, leased: contender.leased + lines };
    entry.servedMs = this.ctx.clock.now();
  }

  /**
   * Resolves when a batch offers lines, or after `ms`.
   * @param held of a node that runs functions; null: it has an engine
   */
  wait(ms: number, tier: Tier, held: HeldContexts | null): Promise<void> {
    if (this.#waiting.size >= WAITING_MAX) return Promise.resolve();
    return new Promise((resolve) => {
      const node: WaitingNode = {
        tier,
        held: held ?? undefined,
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
