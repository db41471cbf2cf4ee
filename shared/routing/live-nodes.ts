import { type BreakerState, type LiveState, LOAD_KNOWN_MS, type NodeLoad } from './node-load.ts';

/**
 * What one isolate knows about a session now. Candidates refer to this object, so a new load needs no new list of
 * candidates.
 */
export interface LiveNode {
  /** The engine's last reported load; undefined if it is unknown or stale. */
  load: NodeLoad | undefined;
  breaker: BreakerState | undefined;
  /** Number of open requests to this node from this isolate or agent. */
  inFlight: number;
  /**
   * `inFlight` at the time of the load report. Requests that `inFlight` counts above this number are not included in
   * the load.
   */
  inFlightThen: number;
  /** Mean time to the first token of streams, and the time of the newest one; see first-token-times.ts. */
  firstToken?: { ms: number; at: number };
}

/**
 * Reports of one node arrive within seconds of each other. If a report is older than the previous one by more than
 * this, the node's clock was set back between them.
 */
const CLOCK_SET_MS = 120_000;

function isNewer(known: number, reported: number): boolean {
  return known >= reported && known - reported <= CLOCK_SET_MS;
}

/** The live state of the sessions in a node index. It is bounded because it forgets a session when the index does. */
export class LiveNodes {
  readonly #nodes = new Map<string, LiveNode>();
  /** Sessions with a load that is not stale, oldest first. */
  readonly #loaded = new Map<string, LiveNode>();
  /** Sessions with a breaker that is not closed. */
  readonly tripped = new Map<string, BreakerState>();

  of(session: string): LiveNode {
    let node = this.#nodes.get(session);
    if (node === undefined) {
      node = { load: undefined, breaker: undefined, inFlight: 0, inFlightThen: 0 };
      this.#nodes.set(session, node);
    }
    return node;
  }

  /** The last load report of the session. Undefined if there is none, or `expire` found it stale. */
  loadOf(session: string): NodeLoad | undefined {
    return this.#nodes.get(session)?.load;
  }

  /** Stores a session's load report. A report that is older than the known one changes nothing. */
  setLoad(session: string, load: NodeLoad): void {
    const node = this.of(session);
    if (node.load !== undefined && isNewer(node.load.at, load.at)) return;
    node.load = load;
    node.inFlightThen = node.inFlight;
    this.#loaded.delete(session);
    this.#loaded.set(session, node);
  }

  /** Stores the live part of the registry's snapshot. */
  apply(states: Readonly<Record<string, LiveState>>): void {
    for (const [session, { load, breaker }] of Object.entries(states)) {
      if (load !== undefined) this.setLoad(session, load);
      if (breaker !== undefined) this.setBreaker(session, breaker);
    }
  }

  /**
   * Stores a breaker's state unless a newer one is known, because a snapshot may be older than what this isolate found
   * out.
   */
  setBreaker(session: string, breaker: BreakerState): void {
    const node = this.of(session);
    if (node.breaker !== undefined && isNewer(node.breaker.since, breaker.since)) return;
    node.breaker = breaker;
    if (breaker.state === 'open') this.tripped.set(session, breaker);
    else this.tripped.delete(session);
  }

  /** Forgets stale loads. Takes time proportional to their number. */
  expire(now: number): void {
    for (const [session, node] of this.#loaded) {
      // The age is slightly below 0 if two machines' clocks differ, and far below 0 if this machine's clock was set
      // back.
      if (node.load !== undefined && Math.abs(now - node.load.at) <= LOAD_KNOWN_MS) return;
      node.load = undefined;
      this.#loaded.delete(session);
    }
  }

  forget(session: string): void {
    this.#nodes.delete(session);
    this.#loaded.delete(session);
    this.tripped.delete(session);
  }

  /** Forgets all sessions that `isKnown` does not accept. Call after the index was refilled. */
  retain(isKnown: (session: string) => boolean): void {
    for (const session of this.#nodes.keys()) if (!isKnown(session)) this.forget(session);
  }
}
