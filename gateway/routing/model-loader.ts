/**
 * Orders nodes to load a model that a request needs. The registry object signs the order, the tunnel object sends it.
 */

import type { DormantModel } from '../../shared/routing/dormant-models.ts';
import type { Env } from '../env.ts';
import type { Background } from '../platform/object-context.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import type { OrderReply } from '../registry/sign-order.ts';

/** Minimum interval between two orders of one isolate to one node for one model, while requests wait for it. */
const REPEAT_MS = 2_000;
/** Maximum orders that are remembered for REPEAT_MS. */
const ORDERED_MAX = 1_000;

interface Context {
  env: Pick<Env, 'REGISTRY' | 'TUNNEL'>;
  ctx: Background;
}

type OrderedNode = Pick<DormantModel, 'session' | 'version'>;

export class ModelLoader {
  /** When each node was last ordered to load each model, for each version of its record. */
  readonly #orderedAt = new Map<string, number>();

  /**
   * Orders the node to load the model. Does not wait for the answer. Repeats the order after REPEAT_MS, or if the
   * node's record has changed: a model that was loaded and unloaded again needs another order.
   */
  ask(model: string, { session, version }: OrderedNode, { env, ctx }: Context, now: number): void {
    const key = `${session} ${version} ${model}`;
    const before = this.#orderedAt.get(key);
    if (before !== undefined && Math.abs(now - before) < REPEAT_MS) return;
    this.#orderedAt.delete(key);
    this.#orderedAt.set(key, now);
    const oldest = this.#orderedAt.keys().next().value;
    if (this.#orderedAt.size > ORDERED_MAX && oldest !== undefined) this.#orderedAt.delete(oldest);
    // If the order is lost, the next request for the model sends another one.
    ctx.waitUntil(order(session, model, env).catch(() => {}));
  }
}

async function order(session: string, model: string, { REGISTRY, TUNNEL }: Context['env']): Promise<void> {
  const request = { action: 'load', model } as const;
  const reply = (await REGISTRY.getByName(REGISTRY_OBJECT_NAME).order(session, request)) as OrderReply;
  if (reply.kind === 'signed') await TUNNEL.getByName(session).deploy(reply.order);
}

/** The loader of this isolate. */
export const modelLoader = new ModelLoader();
