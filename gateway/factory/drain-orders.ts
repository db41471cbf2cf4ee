/** Sends drain orders for an autoscaler, which ends its own jobs this way. The registry object signs the orders. */
import { FACTORY_LABEL, type FactoryReport } from '../../shared/factory/factory-exchange.ts';
import { RATE_FRAME } from '../../shared/wire/protocol-constants.ts';
import { auditLog } from '../accounts/account-tables.ts';
import { database } from '../accounts/database.ts';
import type { Env } from '../env.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import type { RegistrySnapshot } from '../registry/isolate-snapshot.ts';
import type { OrderReply } from '../registry/sign-order.ts';
import type { FactoryIdentity } from './factory-reports.ts';

/**
 * Minimum interval between two orders to one session. The autoscaler names the session in each report until the node
 * has left.
 */
const RETRY_MS = 30_000;
/** Maximum sessions that are remembered as recently ordered to drain. */
const ORDERED_MAX = 4_096;

export class DrainOrders {
  readonly #env: Env;
  readonly #orderedAt = new Map<string, number>();

  constructor(env: Env) {
    this.#env = env;
  }

  /**
   * Sends the orders that a report requests. Skips nodes of other providers, and nodes without this autoscaler's name
   * in their label: a factory token may drain only nodes of its autoscaler's jobs. Never rejects.
   */
  async give(
    factory: FactoryIdentity,
    drain: FactoryReport['drain'],
    view: RegistrySnapshot,
    now: number,
  ): Promise<void> {
    for (const [session, at] of this.#orderedAt) if (now - at >= RETRY_MS) this.#orderedAt.delete(session);
    const due = drain.filter(({ session }) => isOwn(factory, session, view) && !this.#orderedAt.has(session));
    await Promise.all(
      due.map(async ({ session, why }) => {
        if (this.#orderedAt.size >= ORDERED_MAX) return;
        this.#orderedAt.set(session, now);
        try {
          await this.#order(factory, session, why, now);
        } catch (error) {
          console.error(`factory ${factory.factory}: cannot drain session ${session}: ${error}`);
        }
      }),
    );
  }

  async #order(factory: FactoryIdentity, session: string, why: string, now: number): Promise<void> {
    const { REGISTRY, TUNNEL } = this.#env;
    const reply = (await REGISTRY.getByName(REGISTRY_OBJECT_NAME).order(session, { action: 'drain' })) as OrderReply;
    if (reply.kind !== 'signed') return;
    const tunnel = TUNNEL.getByName(session);
    const status = await tunnel.status();
    if (status === null || status.reads < RATE_FRAME) return;
    const after = { factory: factory.factory, why };
    const line = { at: now, actor: factory.tokenId, action: 'node.drain', object: session, before: null, after };
    await database(this.#env).insert(auditLog).values(line);
    await tunnel.deploy(reply.order);
  }
}

function isOwn({ provider, factory }: FactoryIdentity, session: string, { nodes }: RegistrySnapshot): boolean {
  const entry = nodes.get(session);
  if (entry === undefined || entry.provider !== provider || entry.labels[FACTORY_LABEL] !== factory) return false;
  return entry.leaving === undefined && (entry.state === 'JOIN' || entry.state === 'SERVING');
}
