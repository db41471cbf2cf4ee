/** State that all parts of one core share. `now` and `rng` are those of the current step. */
import type { Crypto, Signer } from '../lattice/crypto-interface.ts';
import type { RegistryReplica } from '../lattice/registry-replica.ts';
import type { Entry } from '../lattice/replica-entry.ts';
import type { ActionBatch } from './action-batch.ts';
import type { ClusterRing } from './cluster-ring.ts';
import type { GossipSelf, PeerId } from './gossip-events.ts';
import type { GossipOptions } from './gossip-options.ts';
import type { TimerQueue } from './timer-queue.ts';

export interface GossipContext {
  readonly self: GossipSelf;
  /** This node's session id, or a gateway's `gw:…`. */
  readonly me: PeerId;
  readonly replica: RegistryReplica;
  readonly crypto: Crypto;
  readonly signer: Signer | undefined;
  /** Replaced as a whole when the operator changes the settings. */
  options: GossipOptions;
  readonly timerQueue: TimerQueue;
  readonly out: ActionBatch;
  /**
   * Members that are neither LEFT nor suspected, by cluster, including this node. At an agent, only members of its own
   * cluster.
   */
  readonly rings: Map<string, ClusterRing>;
  now: number;
  rng: () => number;
}

const GATEWAY = 'gw:';

export function isGateway(peer: PeerId): boolean {
  return peer.startsWith(GATEWAY);
}

/** `ms` plus or minus a random part: at most half of `options.jitter`, which is a fraction of `ms`. */
export function withJitter(context: GossipContext, ms: number): number {
  return ms * (1 + context.options.jitter * (context.rng() - 0.5));
}

/** The entry of a session that has not left; otherwise undefined. */
export function memberEntry(context: GossipContext, session: string): Entry | undefined {
  const entry = context.replica.get(session);
  return entry === undefined || entry.state === 'LEFT' ? undefined : entry;
}

/** The ring of an agent's own cluster. */
export function clusterRing(context: GossipContext): ClusterRing | undefined {
  return context.self.kind === 'agent' ? context.rings.get(context.self.cluster) : undefined;
}

/** Shuffles in place (Fisher-Yates). */
export function shuffle<T>(items: T[], rng: () => number): T[] {
  for (let i = items.length - 1; i > 0; i--) {
    const j = Math.floor(rng() * (i + 1));
    const a = items[i];
    const b = items[j];
    if (a === undefined || b === undefined) continue;
    items[i] = b;
    items[j] = a;
  }
  return items;
}
