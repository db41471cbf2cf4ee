/** A peer with an open channel: what is known about it, and what it may still send. */

import { TokenBucket } from '../collections/token-bucket.ts';
import { type GossipContext, isGateway } from './gossip-context.ts';
import type { PeerId } from './gossip-events.ts';

export interface PeerState {
  readonly id: PeerId;
  readonly gateway: boolean;
  readonly inbound: boolean;
  readonly openedAt: number;
  /** Bytes that the peer may send without being asked. */
  readonly bytes: TokenBucket;
  readonly checks: TokenBucket;
  /** Bytes that the peer may send because we asked, and entries that it may make us request. */
  readonly asked: TokenBucket;
  readonly wants: TokenBucket;
  /**
   * This node's root and the peer's, if they differ only in issuers that one of the two does not list. They need not be
   * compared again.
   */
  settled: { mine: bigint; theirs: bigint } | undefined;
  /** At a gateway: true if the peer asked for everything that its cluster's delegates receive. */
  apart: boolean;
  /** When the peer's last message arrived. */
  heardAt: number;
  /** Number of requested updates that may still arrive. */
  expected: number;
  /** When the peer last received suspicions or refutations. */
  toldAt: number;
  /** True if updates are sent to the peer immediately; see broadcast-tree.ts. */
  branch: boolean;
  /** When the peer was last the first to send an update. */
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
    settled: undefined,
    apart: false,
    heardAt: now,
    expected: 0,
    toldAt: Number.NEGATIVE_INFINITY,
    branch: true,
    firstAt: Number.NEGATIVE_INFINITY,
  };
}
