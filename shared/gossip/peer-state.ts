/** A peer with an open channel: what is known about it, and what it may still send. */

import { TokenBucket } from '../collections/token-bucket.ts';
import { type GossipContext, isGateway } from './gossip-context.ts';
import type { PeerId } from './gossip-events.ts';

export interface PeerState {
  readonly id: PeerId;
  readonly gateway: boolean;
  readonly inbound: boolean;
  readonly openedAt: number;
  /** Token bucket for bytes that the peer sends without being asked. */
  readonly bytes: TokenBucket;
  readonly checks: TokenBucket;
  /**
   * Token buckets for bytes that this node asked the peer for, and for entries that the peer's digests make this node
   * request.
   */
  readonly asked: TokenBucket;
  readonly wants: TokenBucket;
  /**
   * This node's root and the peer's root, if they differ only in issuers that one of the two does not list. Such roots
   * need not be compared again.
   */
  comparedRoots: { mine: bigint; theirs: bigint } | undefined;
  /** At a gateway: true if the peer asked for everything that its cluster's delegates receive. */
  isIsolated: boolean;
  /** When the peer's last message arrived. */
  heardAt: number;
  /** Number of requested updates that have not arrived yet. */
  expected: number;
  /** When the peer was last sent suspicions or refutations. */
  suspicionsSentAt: number;
  /** True if updates are sent to the peer immediately; see broadcast-tree.ts. */
  branch: boolean;
  /** When the peer was last the first to send an update to this node. */
  firstAt: number;
}

export function newPeerState(id: PeerId, inbound: boolean, { now, options }: GossipContext): PeerState {
  return {
    id,
    gateway: isGateway(id),
    inbound,
    openedAt: now,
    bytes: new TokenBucket(options.peerBytesPerSecond, options.peerBurstBytes, now),
    checks: new TokenBucket(options.peerChecksPerSecond, options.peerBurstChecks, now),
    asked: new TokenBucket(options.askedBytesPerSecond, options.askedBurstBytes, now),
    wants: new TokenBucket(options.wantsPerSecond, options.burstWants, now),
    comparedRoots: undefined,
    isIsolated: false,
    heardAt: now,
    expected: 0,
    suspicionsSentAt: Number.NEGATIVE_INFINITY,
    branch: true,
    firstAt: Number.NEGATIVE_INFINITY,
  };
}
