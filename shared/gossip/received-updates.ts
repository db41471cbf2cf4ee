/**
 * Merges updates into the replica and handles the consequences: changes the rings, passes updates on, and ends this
 * agent's session if it was evicted or cloned.
 */

import type { Update } from '../lattice/registry-update.ts';
import type { MergeResult } from '../lattice/update-merger.ts';
import type { AntiEntropy } from './anti-entropy.ts';
import type { Broadcast, UpdateSubject } from './broadcast.ts';
import type { BroadcastTree } from './broadcast-tree.ts';
import { ClusterRing } from './cluster-ring.ts';
import type { EvictionDecider } from './eviction-decider.ts';
import type { GossipChannels } from './gossip-channels.ts';
import { type GossipContext, memberEntry } from './gossip-context.ts';
import type { LivenessTable } from './liveness-table.ts';
import type { PeerState } from './peer-state.ts';

/** Number of signatures to check in a new entry: the ticket's and the record's. */
const CHECKS_PER_UPDATE = 2;

interface Parts {
  channels: GossipChannels;
  livenessTable: LivenessTable;
  broadcast: Broadcast;
  antiEntropy: AntiEntropy;
  tree: BroadcastTree;
  /** Undefined at an agent, because only gateways decide evictions. */
  evictionDecider: EvictionDecider | undefined;
  /**
   * Counts `checks` against the signature checks that the peer may cause. Ends the peer's channel if no checks are
   * left.
   */
  charge(peer: PeerState, checks: number): boolean;
  reject(peer: PeerState, code: string): void;
}

export class ReceivedUpdates {
  readonly #context: GossipContext;
  readonly #parts: Parts;
  /**
   * This agent's last record. If the replica holds another record for this session, another process signs with its key.
   */
  #own: { hash: string } | undefined;
  #ended = false;

  constructor(context: GossipContext, parts: Parts) {
    this.#context = context;
    this.#parts = parts;
  }

  /** @param isNews true if the update must be passed on */
  receive(peer: PeerState, update: Update, isNews: boolean): void {
    const result = this.#context.replica.merge(update);
    const expected = this.#parts.antiEntropy.expects(peer);
    switch (result.outcome) {
      case 'known':
        if (isNews) for (const session of result.sessions) this.#parts.tree.onDuplicate(peer, session);
        return;
      case 'older':
        this.#noteConflict(result);
        // An old update costs no signature check. The proof that an owner signed two records of the same rank costs one
        // check each time it arrives.
        if (result.conflict !== undefined) this.#parts.charge(peer, 1);
        return;
      case 'collected':
        return this.#checkSelf([result.session]);
      case 'deferred':
        return this.#parts.antiEntropy.requestSession(peer, result.session);
      case 'rejected':
        return this.#parts.reject(peer, result.code);
      case 'merged':
        // Handled before the charge, because the update is already in the replica even if its sender is over its limit.
        this.#merged(result, isNews);
        if (!expected && !this.#parts.charge(peer, CHECKS_PER_UPDATE)) return;
        if (isNews) this.#parts.broadcast.update(update, this.#subject(update, result.sessions), peer.id);
        else this.#parts.antiEntropy.onRepair(peer);
    }
  }

  local(update: Update): void {
    const result = this.#context.replica.merge(update);
    if (result.outcome !== 'merged' && result.outcome !== 'known') return;
    const mine = this.#context.replica.get(this.#context.me)?.record;
    if (mine !== undefined && result.sessions.includes(this.#context.me)) this.#own = mine;
    // `known` means that the driver has merged the update before this call. Other members do not know it yet, so it is
    // handled like a new one.
    this.#merged(result, true);
    this.#parts.broadcast.update(update, this.#subject(update, result.sessions), undefined);
  }

  #subject(update: Update, sessions: readonly string[]): UpdateSubject {
    const session = update.kind === 'entry' ? sessions[0] : undefined;
    const cluster = session === undefined ? undefined : this.#context.replica.get(session)?.ticket.cluster;
    return { session, cluster };
  }

  #merged(result: Extract<MergeResult, { outcome: 'merged' | 'known' }>, byPush: boolean): void {
    this.#parts.antiEntropy.changed(result.issuer, result.sessions, byPush);
    this.#noteConflict(result);
    this.changed(result.sessions);
  }

  #noteConflict(result: MergeResult): void {
    if (!('conflict' in result) || result.conflict === undefined) return;
    const { session, records } = result.conflict;
    this.#context.out.act({ type: 'notice', notice: { what: 'equivocation', session, records } });
  }

  changed(sessions: readonly string[]): void {
    if (sessions.length === 0) return;
    this.#context.out.changed(sessions);
    for (const session of sessions) this.#memberChanged(session);
    this.#checkSelf(sessions);
  }

  #memberChanged(session: string): void {
    const { self } = this.#context;
    const entry = memberEntry(this.#context, session);
    if (entry === undefined) {
      for (const ring of this.#context.rings.values()) {
        if (ring.remove(session)) break;
      }
      this.#parts.evictionDecider?.remove(session);
      this.#parts.livenessTable.forget(session);
      if (session !== this.#context.me) this.#parts.channels.membersChanged(session);
      return;
    }
    const { cluster } = entry.ticket;
    if (self.kind === 'agent' && cluster !== self.cluster) return;
    if (this.#parts.livenessTable.isSuspected(session)) return;
    let ring = this.#context.rings.get(cluster);
    if (ring === undefined) {
      ring = new ClusterRing();
      this.#context.rings.set(cluster, ring);
    }
    if (ring.add(session)) this.#parts.channels.membersChanged();
  }

  /** Ends this agent's session if its issuer evicted it, or another process signed for it. */
  #checkSelf(sessions: readonly string[]): void {
    const { me, out, replica, self } = this.#context;
    if (self.kind !== 'agent' || this.#ended || !sessions.includes(me)) return;
    const entry = replica.get(me);
    const mine = this.#own;
    if (mine === undefined) return;
    if (entry === undefined || entry.eviction !== undefined) {
      this.#ended = true;
      out.act({ type: 'ended', reason: 'evicted' });
    } else if (entry.record?.hash !== mine.hash) {
      this.#ended = true;
      out.act({ type: 'ended', reason: 'cloned' });
    }
  }
}
