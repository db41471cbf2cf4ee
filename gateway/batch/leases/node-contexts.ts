/** Which contexts are on which nodes, as the nodes said when they last asked for lines. Only in memory. */
import { type ContextWarmth, contextWarmth, type NodeContexts } from '../../../shared/batch/function-context.ts';

/** Maximum nodes. The node with the oldest question is forgotten. */
const NODES_MAX = 4_096;
/** An idle node asks every 20 s. After this time without a question, the node is gone, or in a long call. */
const KEPT_MS = 120_000;

/** Number of nodes on which a function is loaded, is being loaded, or has its code stored. */
export type ContextCounts = Record<Exclude<ContextWarmth, 'cold'>, number>;

export class NodeContextTable {
  /** By session, in the order of their last questions. */
  readonly #nodes = new Map<string, { held: NodeContexts; atMs: number }>();

  set(session: string, held: NodeContexts, nowMs: number): void {
    this.#nodes.delete(session);
    this.#nodes.set(session, { held, atMs: nowMs });
    for (const [oldest, { atMs }] of this.#nodes) {
      if (this.#nodes.size <= NODES_MAX && nowMs - atMs < KEPT_MS) break;
      this.#nodes.delete(oldest);
    }
  }

  /** The contexts of one node; undefined: it has not asked recently. */
  of(session: string, nowMs: number): NodeContexts | undefined {
    const known = this.#nodes.get(session);
    return known !== undefined && nowMs - known.atMs < KEPT_MS ? known.held : undefined;
  }

  /** @param running nodes that run lines of the context now: it is loaded there, although they do not ask */
  counts(context: string, running: readonly string[], nowMs: number): ContextCounts {
    const counts: ContextCounts = { ready: 0, loading: 0, stored: 0 };
    const sessions = new Set([...this.#nodes.keys(), ...running]);
    for (const session of sessions) {
      const held = this.of(session, nowMs);
      const warmth = held === undefined ? 'cold' : contextWarmth(context, held);
      const now = warmth !== 'loading' && running.includes(session) ? 'ready' : warmth;
      if (now !== 'cold') counts[now] += 1;
    }
    return counts;
  }
}

/**
 * True if a line that failed at its node should be tried at another one: several nodes serve each of the models, or
 * have had the function.
 * @param readyOf number of nodes that serve a model
 */
export function canOthersTry(
  { function: made, demands }: { function?: object | undefined; demands: readonly { model: string }[] },
  contexts: ContextCounts | null,
  readyOf: (model: string) => number,
): boolean {
  if (made === undefined) return demands.every(({ model }) => readyOf(model) > 1);
  return contexts !== null && contexts.ready + contexts.loading + contexts.stored > 1;
}
