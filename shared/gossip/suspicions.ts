/** Suspicions of sessions: raising, receiving and refuting them. */
import type { Broadcast } from './broadcast.ts';
import type { EvictionDecider } from './eviction-decider.ts';
import type { GossipChannels } from './gossip-channels.ts';
import { type GossipContext, memberEntry } from './gossip-context.ts';
import type { PeerId, Refutation, Suspicion } from './gossip-events.ts';
import type { LivenessProbes } from './liveness-probes.ts';
import type { LivenessTable } from './liveness-table.ts';
import type { PeerState } from './peer-state.ts';
import type { Pinger } from './pinger.ts';

interface Parts {
  channels: GossipChannels;
  livenessTable: LivenessTable;
  probes: LivenessProbes;
  pinger: Pinger;
  broadcast: Broadcast;
  /** Undefined at an agent, because only gateways decide evictions. */
  evictionDecider: EvictionDecider | undefined;
  /**
   * Counts `checks` against the signature checks that the peer may cause. Ends the peer's channel if no checks are
   * left.
   */
  charge(peer: PeerState, checks: number): boolean;
  reject(peer: PeerState, code: string): void;
}

export class Suspicions {
  readonly #context: GossipContext;
  readonly #parts: Parts;

  constructor(context: GossipContext, parts: Parts) {
    this.#context = context;
    this.#parts = parts;
  }

  /** Call when all three kinds of paths to `target` failed (see liveness-probes.ts). */
  accuse(target: PeerId): void {
    const { me, now, options } = this.#context;
    const cluster = memberEntry(this.#context, target)?.ticket.cluster;
    if (cluster === undefined) return;
    // An agent accuses only sessions of its own cluster.
    if (this.#context.self.kind === 'agent' && cluster !== this.#context.self.cluster)
      return this.#parts.livenessTable.setReachable(target, false);
    // Other members ignore a suspicion that follows an earlier one too soon, and the target does not answer it.
    if (now - this.#parts.livenessTable.lastAccused(target, me) < options.accuseMs) return;
    const suspicion = this.#parts.livenessTable.accuse(target);
    if (suspicion === undefined) return;
    const known = this.#parts.livenessTable.suspicionsOf(target).some(({ observer }) => observer === me);
    if (known) return;
    this.#parts.livenessTable.addSuspicion(suspicion);
    this.#parts.broadcast.sendSuspicion(target, suspicion);
    this.#parts.broadcast.forward({ type: 'suspicion', suspicion }, target, undefined);
  }

  onSuspicion(peer: PeerState, suspicion: Suspicion): void {
    const { me } = this.#context;
    if (suspicion.target === me) return this.#refute(peer, suspicion);
    const wasNear = this.#parts.channels.topology.near().has(suspicion.target);
    const outcome = this.#parts.livenessTable.checkSuspicion(suspicion, () => this.#parts.charge(peer, 2));
    if (outcome === 'forged') return this.#parts.reject(peer, 'bad_signature');
    if (outcome !== 'new' && outcome !== 'confirmed') return;
    const accept = () => {
      this.#parts.livenessTable.addSuspicion(suspicion);
      this.#parts.evictionDecider?.confirmed(suspicion.target);
      this.#parts.broadcast.sendSuspicion(suspicion.target, suspicion);
      this.#parts.broadcast.forward({ type: 'suspicion', suspicion }, suspicion.target, peer.id);
    };
    // Called if the suspected session is alive. It must learn of the suspicion, because other members believe it until
    // the session refutes it.
    const pass = () => this.#parts.broadcast.sendToMember({ type: 'suspicion', suspicion }, suspicion.target);
    if (this.#parts.evictionDecider !== undefined)
      return this.#parts.evictionDecider.suspicion(suspicion, accept, pass);
    accept();
    // The target's neighbors probe it, too. If it does not answer them, its grace period gets shorter. If it answers,
    // they inform it about the suspicion.
    if (wasNear) this.#parts.probes.probe(suspicion.target);
  }

  #refute(peer: PeerState, suspicion: Suspicion): void {
    // This agent refutes every validly signed accusation, even a false one.
    const outcome = this.#parts.livenessTable.checkSuspicion(suspicion, () => this.#parts.charge(peer, 2));
    if (outcome === 'forged') return this.#parts.reject(peer, 'bad_signature');
    if (outcome === 'refused') return;
    const refutation = outcome === 'known' ? undefined : this.#parts.livenessTable.refute(suspicion);
    if (refutation !== undefined)
      this.#parts.broadcast.forward({ type: 'refutation', refutation }, this.#context.me, undefined);
    const answer = refutation ?? this.#parts.livenessTable.ownRefutation();
    if (answer !== undefined) this.#context.out.send(peer.id, { type: 'refutation', refutation: answer });
  }

  onRefutation(peer: PeerState, refutation: Refutation): void {
    if (refutation.session === this.#context.me) return;
    const outcome = this.#parts.livenessTable.applyRefutation(refutation, () => this.#parts.charge(peer, 1));
    if (outcome === 'forged') return this.#parts.reject(peer, 'bad_signature');
    if (outcome === 'new')
      this.#parts.broadcast.forward({ type: 'refutation', refutation }, refutation.session, peer.id);
  }

  /**
   * Informs a suspected peer of the suspicions against it, so that it can refute them. The peer may not know that it is
   * suspected.
   */
  sendSuspicions(peer: PeerState): void {
    const { now, options, out } = this.#context;
    if (!this.#parts.livenessTable.isSuspected(peer.id) || now - peer.suspicionsSentAt < options.probeMs) return;
    peer.suspicionsSentAt = now;
    for (const suspicion of this.#parts.livenessTable.suspicionsOf(peer.id))
      out.send(peer.id, { type: 'suspicion', suspicion });
  }

  /**
   * While members are suspected or unreachable, tries one of them at a time. Otherwise two halves of a cluster would
   * never reconnect (weaviate issue 10698). Also, a member that is not a neighbor is not pinged regularly, and would
   * get no requests from this node after one failure.
   */
  watchMissing(): void {
    const { timerQueue, now, options, rng, self } = this.#context;
    const { channels, livenessTable, probes, pinger } = this.#parts;
    if (
      self.kind === 'gateway' ||
      livenessTable.suspects.size + livenessTable.unreachable.size === 0 ||
      timerQueue.has('missing')
    )
      return;
    timerQueue.set('missing', now + options.suspectMs * (0.5 + rng()), () => {
      const missing = [...livenessTable.suspects, ...livenessTable.unreachable];
      const id = missing[Math.floor(this.#context.rng() * missing.length)];
      if (id !== undefined && livenessTable.unreachable.has(id)) probes.probe(id);
      else if (id !== undefined && channels.open.has(id)) pinger.ping(id);
      else if (id !== undefined && this.#context.replica.get(id)?.ticket.cluster === self.cluster) channels.dial(id);
      this.watchMissing();
    });
  }
}
