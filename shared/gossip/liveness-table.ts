/**
 * Knows which sessions are alive. Liveness is not in the lattice, because it can change back. An observer signs its
 * suspicion, which is about one incarnation of the target. The target refutes it with a higher incarnation, which only
 * the target can sign (SWIM, Das et al. 2002, with signatures).
 */

import type { GossipContext } from './gossip-context.ts';
import { memberEntry } from './gossip-context.ts';
import type { Liveness, Refutation, Suspicion } from './gossip-events.ts';
import { INCARNATION_MAX, refutationMessage, suspicionMessage } from './gossip-messages.ts';
import { hashLivenessRow, isSuspected, type LivenessRow, newLivenessRow, OBSERVERS_MAX } from './liveness-row.ts';

/** Maximum number of accusers that are remembered per target, to limit how often each accuses it. */
const ACCUSERS_MAX = 32;

type ClaimOutcome = 'new' | 'confirmed' | 'known' | 'refused' | 'forged';

export class LivenessTable {
  readonly #context: GossipContext;
  /**
   * Rows of sessions that were accused or unreachable. A row is removed when its session leaves. Bounded by the
   * replica's sessions.
   */
  readonly #rows = new Map<string, LivenessRow>();
  readonly suspects = new Set<string>();
  /** Sessions that are currently unreachable. */
  readonly unreachable = new Set<string>();
  readonly #onChange: (session: string) => void;
  #incarnation = 0;
  #sum: number | undefined;
  #changedAt = Number.NEGATIVE_INFINITY;

  constructor(context: GossipContext, onChange: (session: string) => void) {
    this.#context = context;
    this.#onChange = onChange;
  }

  get incarnation(): number {
    return this.#incarnation;
  }

  of(session: string): Liveness {
    const row = this.#rows.get(session);
    if (row === undefined) return 'alive';
    if (isSuspected(row) || row.dampedUntil > this.#context.now) return 'suspected';
    return row.unreachable ? 'unreachable' : 'alive';
  }

  isSuspected(session: string): boolean {
    return this.suspects.has(session);
  }

  observers(session: string): number {
    return this.#rows.get(session)?.suspicions.size ?? 0;
  }

  /**
   * Hash of the table's incarnations and suspicions, equal at two nodes that know the same ones. It is not signed,
   * because a peer that sends a false hash harms only the repair of its own table.
   */
  get sum(): number {
    if (this.#sum !== undefined) return this.#sum;
    let sum = 0;
    for (const [session, row] of this.#rows) {
      if (row.incarnation > 0 || row.suspicions.size > 0) sum = (sum + hashLivenessRow(session, row)) >>> 0;
    }
    this.#sum = sum;
    return sum;
  }

  /** True if the table has just changed, so that a difference from a peer's table is probably being sent. */
  get unsettled(): boolean {
    return this.#context.now - this.#changedAt < this.#context.options.quietMs;
  }

  /** Returns at most `max` signed statements, starting at a random position. */
  statements(max: number): (Suspicion | Refutation)[] {
    const statements: (Suspicion | Refutation)[] = [];
    for (const row of this.#rows.values()) {
      if (row.suspicions.size > 0) statements.push(...[...row.suspicions.values()].slice(0, 1));
      else if (row.refutation !== undefined) statements.push(row.refutation);
    }
    if (statements.length <= max) return statements;
    const from = Math.floor(this.#context.rng() * statements.length);
    return [...statements.slice(from), ...statements.slice(0, from)].slice(0, max);
  }

  suspicionsOf(session: string): Suspicion[] {
    return [...(this.#rows.get(session)?.suspicions.values() ?? [])];
  }

  /** Signs this agent's suspicion at the target's known incarnation. */
  accuse(target: string): Suspicion | undefined {
    const { signer, me } = this.#context;
    if (signer === undefined) return undefined;
    const row = this.#rows.get(target);
    const incarnation = row?.incarnation ?? 0;
    const signature = signer.sign(suspicionMessage(target, incarnation, me));
    return { target, incarnation, observer: me, signature, proof: row?.refutation?.signature };
  }

  /**
   * Raises this agent's incarnation above the accusation's, and signs it. Undefined if the accusation was already
   * answered, its incarnation is the highest possible one, or this node is a gateway.
   */
  refute(accusation: Suspicion): Refutation | undefined {
    const { signer, me } = this.#context;
    if (signer === undefined || accusation.incarnation < this.#incarnation) return undefined;
    if (accusation.incarnation >= INCARNATION_MAX) return undefined;
    this.#incarnation = accusation.incarnation + 1;
    const signature = signer.sign(refutationMessage(me, this.#incarnation));
    const refutation = { session: me, incarnation: this.#incarnation, signature };
    const row = this.#row(me);
    row.refutation = refutation;
    row.incarnation = this.#incarnation;
    this.#noteAccuser(row, accusation.observer);
    this.#changed(me);
    return refutation;
  }

  lastAccused(target: string, observer: string): number {
    return this.#rows.get(target)?.accusers.get(observer) ?? Number.NEGATIVE_INFINITY;
  }

  ownRefutation(): Refutation | undefined {
    return this.#rows.get(this.#context.me)?.refutation;
  }

  /** Checks a suspicion without adding it. @param charge called before a signature is verified */
  checkSuspicion(suspicion: Suspicion, charge: () => boolean): ClaimOutcome {
    const { target, incarnation, observer } = suspicion;
    const entry = memberEntry(this.#context, target);
    // The suspicion of an observer that has left does not count. But other members may have believed it before the
    // observer left, so the accused must still answer it.
    const isMe = target === this.#context.me;
    const witness = isMe ? this.#context.replica.get(observer) : memberEntry(this.#context, observer);
    if (entry === undefined || witness === undefined || observer === target) return 'refused';
    if (witness.ticket.cluster !== entry.ticket.cluster) return 'refused';
    const row = this.#rows.get(target);
    const known = row?.incarnation ?? 0;
    if (incarnation < known) return 'known';
    const here = row !== undefined && incarnation === known ? row.suspicions : undefined;
    if (here?.has(observer) || (here?.size ?? 0) >= OBSERVERS_MAX) return 'known';
    // The accused accepts an observer's suspicions at half the interval of other members, so that it answers every
    // suspicion that a member believes.
    const againAfterMs = this.#context.options.accuseMs * (isMe ? 0.5 : 1);
    if (this.#context.now - this.lastAccused(target, observer) < againAfterMs) return 'refused';
    if (!charge()) return 'refused';
    if (incarnation > known && !this.#isOwn(target, incarnation, suspicion.proof)) return 'forged';
    const message = suspicionMessage(target, incarnation, observer);
    if (!this.#context.crypto.verify(witness.ticket.sessionKey, message, suspicion.signature)) return 'forged';
    return (here?.size ?? 0) > 0 ? 'confirmed' : 'new';
  }

  /** Adds a suspicion that passed `checkSuspicion`. */
  addSuspicion(suspicion: Suspicion): void {
    const { target, incarnation, observer, proof } = suspicion;
    const row = this.#row(target);
    if (incarnation < row.incarnation) return;
    if (incarnation > row.incarnation) {
      row.incarnation = incarnation;
      row.refutation = proof === undefined ? undefined : { session: target, incarnation, signature: proof };
      row.suspicions.clear();
    }
    if (row.suspicions.size >= OBSERVERS_MAX) return;
    if (row.suspicions.size === 0 && !row.suspectedLocally) this.#noteFlap(row);
    row.suspicions.set(observer, suspicion);
    this.#noteAccuser(row, observer);
    this.#changed(target);
  }

  /**
   * Handles a refutation.
   * @returns `new` if it ended the suspicions; `forged` if the signature is not the session's; otherwise `known` or
   * `refused`
   */
  applyRefutation(refutation: Refutation, charge: () => boolean): ClaimOutcome {
    const { session, incarnation } = refutation;
    if (memberEntry(this.#context, session) === undefined) return 'refused';
    if (incarnation <= (this.#rows.get(session)?.incarnation ?? 0)) return 'known';
    if (!charge()) return 'refused';
    if (!this.#isOwn(session, incarnation, refutation.signature)) return 'forged';
    const row = this.#row(session);
    row.incarnation = incarnation;
    row.refutation = refutation;
    this.#clear(session, row);
    return 'new';
  }

  /** Suspects a session by this gateway's own judgment, without a signed suspicion. */
  suspectLocally(session: string): void {
    const row = this.#row(session);
    if (!isSuspected(row)) this.#noteFlap(row);
    row.suspectedLocally = true;
    this.#changed(session);
  }

  /**
   * Ends the suspicion of a session without a refutation, because there is proof or a witness that the session is
   * alive.
   */
  clearSuspicion(session: string): void {
    const row = this.#rows.get(session);
    if (row !== undefined && isSuspected(row)) this.#clear(session, row);
  }

  setReachable(session: string, reachable: boolean): void {
    if (reachable && !this.#rows.has(session)) return;
    const row = this.#row(session);
    row.probeFailed = !reachable;
    if (row.unreachable === !reachable) return;
    row.unreachable = !reachable;
    if (reachable) this.unreachable.delete(session);
    else this.unreachable.add(session);
    this.#announce(session, row);
  }

  /** Makes pushes skip the session until it answers again. */
  markProbeFailed(session: string): void {
    this.#row(session).probeFailed = true;
  }

  isReachable(session: string): boolean {
    return this.#rows.get(session)?.probeFailed !== true;
  }

  /** Call when the session has left. Removes its row. */
  forget(session: string): void {
    if (!this.#rows.delete(session)) return;
    this.suspects.delete(session);
    this.unreachable.delete(session);
    this.#context.timerQueue.cancel(`hold:${session}`);
    this.#sum = undefined;
  }

  #noteAccuser(row: LivenessRow, observer: string): void {
    if (row.accusers.size >= ACCUSERS_MAX) row.accusers.clear();
    row.accusers.set(observer, this.#context.now);
  }

  #isOwn(session: string, incarnation: number, signature: Uint8Array | undefined): boolean {
    const key = memberEntry(this.#context, session)?.ticket.sessionKey;
    if (key === undefined || signature === undefined) return false;
    return this.#context.crypto.verify(key, refutationMessage(session, incarnation), signature);
  }

  #clear(session: string, row: LivenessRow): void {
    const { now, options, timerQueue } = this.#context;
    const was = isSuspected(row);
    row.suspicions.clear();
    row.suspectedLocally = false;
    // A link that flaps would change the routing each time. So from the second suspicion within `flapWindowMs` on, the
    // session gets no requests for a while after it has answered.
    if (was && row.flapped) {
      row.dampedUntil = now + options.flapMs;
      timerQueue.set(`hold:${session}`, row.dampedUntil, () => this.#announce(session, row));
    }
    this.#changed(session);
  }

  #noteFlap(row: LivenessRow): void {
    const { now, options } = this.#context;
    row.flapped = now - row.suspectedAt < options.flapWindowMs;
    row.suspectedAt = now;
  }

  #changed(session: string): void {
    const row = this.#row(session);
    this.#sum = undefined;
    this.#changedAt = this.#context.now;
    if (isSuspected(row)) this.suspects.add(session);
    else this.suspects.delete(session);
    this.#announce(session, row);
    this.#onChange(session);
  }

  #announce(session: string, row: LivenessRow): void {
    const liveness = this.of(session);
    if (liveness === row.announced || session === this.#context.me) return;
    row.announced = liveness;
    this.#context.out.act({ type: 'liveness', session, liveness });
  }

  #row(session: string): LivenessRow {
    let row = this.#rows.get(session);
    if (row === undefined) {
      row = newLivenessRow();
      this.#rows.set(session, row);
    }
    return row;
  }
}
