import { type BreakerState, type LiveState, LOAD_KNOWN_MS, type NodeLoad } from './load.ts';

/** What one isolate knows of a session right now. Candidates point to it, so that a new load makes no new list of them. */
export interface LiveNode {
  /** Undefined: not known, or too long ago. */
  load: NodeLoad | undefined;
  breaker: BreakerState | undefined;
  /** Requests that are on their way to it or back, of this isolate or agent. */
  inFlight: number;
  /** `inFlight` when the load came: what it has more now is not in the load yet. */
  inFlightThen: number;
}

/** Words of one node come within seconds of each other. One that is older by more than this was said after its clock was set back. */
const CLOCK_SET_MS = 120_000;

function isNewer(known: number, said: number): boolean {
  return known >= said && known - said <= CLOCK_SET_MS;
}

/** The live side of a node index. Bounded by the sessions of the index, which forgets here what it forgets there. */
export class LiveNodes {
  readonly #nodes = new Map<string, LiveNode>();
  /** Sessions with a load that is still believed, the longest known first. */
  readonly #loaded = new Map<string, LiveNode>();
  /** Sessions whose breaker is not closed. */
  readonly tripped = new Map<string, BreakerState>();

  of(session: string): LiveNode {
    let node = this.#nodes.get(session);
    if (node === undefined) {
      node = { load: undefined, breaker: undefined, inFlight: 0, inFlightThen: 0 };
      this.#nodes.set(session, node);
    }
    return node;
  }

  /** The load that the session last reported. Undefined: none, or `expire` found it too old. */
  loadOf(session: string): NodeLoad | undefined {
    return this.#nodes.get(session)?.load;
  }

  /** A session's own word; an older one than what is known changes nothing. */
  heard(session: string, load: NodeLoad): void {
    const node = this.of(session);
    if (node.load !== undefined && isNewer(node.load.at, load.at)) return;
    node.load = load;
    node.inFlightThen = node.inFlight;
    this.#loaded.delete(session);
    this.#loaded.set(session, node);
  }

  /** What the registry's snapshot brought. */
  apply(states: Readonly<Record<string, LiveState>>): void {
    for (const [session, { load, breaker }] of Object.entries(states)) {
      if (load !== undefined) this.heard(session, load);
      if (breaker !== undefined) this.setBreaker(session, breaker);
    }
  }

  /** The newest word counts: a snapshot may be older than what this isolate found out itself. */
  setBreaker(session: string, breaker: BreakerState): void {
    const node = this.of(session);
    if (node.breaker !== undefined && isNewer(node.breaker.since, breaker.since)) return;
    node.breaker = breaker;
    if (breaker.state === 'open') this.tripped.set(session, breaker);
    else this.tripped.delete(session);
  }

  /** Loads that are too old are forgotten. Costs what is forgotten. */
  expire(now: number): void {
    for (const [session, node] of this.#loaded) {
      // Below 0 where the clocks of two machines differ a little, far below where ours was set back.
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

  /** Forgets all but these: the index was filled anew. */
  retain(isKnown: (session: string) => boolean): void {
    for (const session of this.#nodes.keys()) if (!isKnown(session)) this.forget(session);
  }
}
