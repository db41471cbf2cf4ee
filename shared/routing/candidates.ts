import type { RegistryEntry } from '../lattice/node-record.ts';
import type { LiveNode, LiveNodes } from './live-nodes.ts';
import type { ModelNodes } from './node-index.ts';
import type { NodeLoad } from './node-load.ts';
import { countSatisfied, type Requirement, satisfies } from './requirements.ts';
import { SessionBag } from './session-bag.ts';
import { isTrusted, type Trust, trustsAllAdmitted } from './trusted-providers.ts';

/** A session that could serve a request, as policies see it. */
export interface Candidate {
  session: string;
  provider: string;
  cluster: string;
  region?: string | undefined;
  tier: string;
  /** GPU class (shared/hardware). Absent if the node has no GPU. */
  gpu?: string | undefined;
  /** Number of GPUs. */
  gpus?: number | undefined;
  /** The engine's last reported load; undefined if it is unknown or stale. */
  readonly load?: NodeLoad | undefined;
  /** Number of open requests to this node from this isolate or agent only. */
  readonly inFlight: number;
  /**
   * `inFlight` at the time of the load report. Requests that `inFlight` counts above this number are not included in
   * the load.
   */
  readonly inFlightThen?: number | undefined;
  /** End of the node's job, in milliseconds since 1970. */
  jobEndsAt?: number | undefined;
  /** Id of the key to which clients seal. Absent if the node opens no sealed requests. */
  readonly sealKid?: string | undefined;
}

/** A candidate that reads the node's live state, so that a new load does not need a new list. */
class Serving implements Candidate {
  readonly entry: RegistryEntry;
  readonly gpu: string | undefined;
  readonly gpus: number;
  readonly jobEndsAt: number | undefined;
  readonly live: LiveNode;

  constructor(entry: RegistryEntry, live: LiveNodes) {
    this.entry = entry;
    this.gpu = entry.hardware.gpus[0]?.class;
    this.gpus = entry.hardware.gpus.length;
    const ends = entry.job?.ends_at;
    // biome-ignore lint/style/noRestrictedGlobals: reads a text, asks no clock
    this.jobEndsAt = ends === undefined ? undefined : Date.parse(ends);
    this.live = live.of(entry.session);
  }

  get session(): string {
    return this.entry.session;
  }
  get provider(): string {
    return this.entry.provider;
  }
  get cluster(): string {
    return this.entry.cluster;
  }
  get region(): string | undefined {
    return this.entry.region;
  }
  get tier(): string {
    return this.entry.tier;
  }
  get sealKid(): string | undefined {
    return this.entry.seal?.kid;
  }
  get load(): NodeLoad | undefined {
    return this.live.load;
  }
  get inFlight(): number {
    return this.live.inFlight;
  }
  get inFlightThen(): number {
    return this.live.inFlightThen;
  }
}

/** A request's requirements for nodes, in addition to trust. */
export interface NodeRequirements {
  require: readonly Requirement[];
  /** Preferences, which exclude no candidate. The candidates that meet the most of them form a separate list. */
  prefer: readonly Requirement[];
  /** The requirements and preferences as text. Requests with equal texts share one pool. */
  words: string;
}

export const NO_REQUIREMENTS: NodeRequirements = { require: [], prefer: [], words: '' };

/** Candidates of one model for one set of trusted providers and one set of requirements. */
export interface CandidatePool {
  /** Candidates to which a request can be sent now. */
  readonly ready: readonly Candidate[];
  /** The part of `ready` that meets the most preferences. The same array if there are no preferences. */
  readonly preferred: readonly Candidate[];
  /** Candidates to which the path was lost. A request may be sent to them if no other candidate is available. */
  readonly suspected: readonly Candidate[];
}

const EMPTY: CandidatePool = { ready: [], preferred: [], suspected: [] };

/** Candidates as an array that never changes once it was read, because policies cache results per array. */
class CandidateList {
  #bag = new SessionBag<Serving>();
  #isRead = false;

  get list(): readonly Serving[] {
    this.#isRead = true;
    return this.#bag.list;
  }

  get length(): number {
    return this.#bag.list.length;
  }

  get(session: string): Serving | undefined {
    return this.#bag.get(session);
  }

  /** Sets the session's candidate; undefined: removes it. */
  set(session: string, candidate: Serving | undefined): void {
    if (this.#bag.get(session) === candidate) return;
    if (this.#isRead) {
      this.#bag = this.#bag.moved();
      this.#isRead = false;
    }
    if (candidate === undefined) this.#bag.delete(session);
    else this.#bag.put(candidate);
  }
}

/** A model's candidates that a trust set allows. A change of a node changes only this node's candidate. */
class TrustedPool implements CandidatePool {
  readonly nodes: ModelNodes;
  readonly #trust: Trust;
  readonly #ready = new CandidateList();
  readonly #suspected = new CandidateList();
  #version: number;
  /**
   * Pools by the text of the requirements. If the text contains `time_left`, the key also contains the second in which
   * the pool was made.
   */
  readonly #demanded = new Map<string, DemandedPool>();

  constructor(nodes: ModelNodes, trust: Trust) {
    this.nodes = nodes;
    this.#trust = trust;
    this.#version = nodes.version;
    for (const { session } of [...nodes.ready, ...nodes.suspected]) this.#update(session);
  }

  get ready(): readonly Serving[] {
    return this.#ready.list;
  }
  get suspected(): readonly Serving[] {
    return this.#suspected.list;
  }
  get preferred(): readonly Serving[] {
    return this.#ready.list;
  }

  find(session: string): { ready: Serving | undefined; suspected: Serving | undefined } {
    return { ready: this.#ready.get(session), suspected: this.#suspected.get(session) };
  }

  /** Applies the changes of the model's nodes. False: too many were made, so that a new pool is needed. */
  follow(): boolean {
    if (this.#version === this.nodes.version) return true;
    const changed = this.nodes.changedSince(this.#version);
    this.#version = this.nodes.version;
    for (const session of changed ?? []) this.#update(session);
    return changed !== undefined;
  }

  #update(session: string): void {
    const { ready, suspected } = this.nodes.find(session);
    const candidate = (entry: RegistryEntry | undefined) =>
      entry !== undefined && isTrusted(this.#trust, entry) ? new Serving(entry, this.nodes.live) : undefined;
    this.#ready.set(session, candidate(ready));
    this.#suspected.set(session, candidate(suspected));
  }

  meeting(demand: NodeRequirements, now: number): CandidatePool {
    const timed = [...demand.require, ...demand.prefer].some(({ key }) => key === 'time_left');
    const key = timed ? `${Math.floor(now / 1000)} ${demand.words}` : demand.words;
    const before = this.#demanded.get(key);
    const pool = before?.follow(now) === true ? before : new DemandedPool(this, demand, now);
    keep(this.#demanded, key, pool, DEMANDS_MAX);
    return pool;
  }
}

/** The candidates of a pool that meet a request's requirements. */
class DemandedPool implements CandidatePool {
  readonly #pool: TrustedPool;
  readonly #demand: NodeRequirements;
  readonly #ready = new CandidateList();
  readonly #suspected = new CandidateList();
  /** The candidates of `#ready` by the number of preferences that they meet. Empty if there are no preferences. */
  readonly #byScore: readonly CandidateList[];
  #version: number;

  constructor(pool: TrustedPool, demand: NodeRequirements, now: number) {
    this.#pool = pool;
    this.#demand = demand;
    this.#byScore = demand.prefer.length === 0 ? [] : [...demand.prefer, undefined].map(() => new CandidateList());
    this.#version = pool.nodes.version;
    for (const { session } of [...pool.ready, ...pool.suspected]) this.#update(session, now);
  }

  get ready(): readonly Candidate[] {
    return this.#ready.list;
  }
  get suspected(): readonly Candidate[] {
    return this.#suspected.list;
  }
  get preferred(): readonly Candidate[] {
    return (this.#byScore.findLast(({ length }) => length > 0) ?? this.#ready).list;
  }

  /** Applies the changes that the pool below has applied. False: too many were made, so that a new pool is needed. */
  follow(now: number): boolean {
    if (this.#version === this.#pool.nodes.version) return true;
    const changed = this.#pool.nodes.changedSince(this.#version);
    this.#version = this.#pool.nodes.version;
    for (const session of changed ?? []) this.#update(session, now);
    return changed !== undefined;
  }

  #update(session: string, now: number): void {
    const { require, prefer } = this.#demand;
    const { id } = this.#pool.nodes;
    const { ready, suspected } = this.#pool.find(session);
    const fits = (one: Serving | undefined) => one !== undefined && satisfies(one.entry, require, id, now);
    const one = fits(ready) ? ready : undefined;
    this.#ready.set(session, one);
    this.#suspected.set(session, fits(suspected) ? suspected : undefined);
    const score = one && countSatisfied(one.entry, prefer, id, now);
    for (const [at, list] of this.#byScore.entries()) list.set(session, at === score ? one : undefined);
  }
}

/**
 * Maximum number of remembered trust sets per model. Requests rarely use more sets in the same period, and each set has
 * a list as long as the list of nodes.
 */
const TRUSTS_MAX = 32;
/** Maximum number of remembered requirements per trust set. */
const DEMANDS_MAX = 16;

/** Pools by trust. All requests that trust every admitted node share one entry, with our issuer's name as its key. */
const remembered = new WeakMap<ModelNodes, Map<Trust | string, TrustedPool>>();

/**
 * The candidates that serve a model now, may see the request, and meet its requirements. A node is checked when it
 * changes, not for each request. The lists of the result are valid until the index changes.
 */
export function candidatePool(
  nodes: ModelNodes | undefined,
  trust: Trust,
  demand: NodeRequirements,
  now: number,
): CandidatePool {
  if (nodes === undefined) return EMPTY;
  const pool = trusted(nodes, trust);
  return demand.words === '' ? pool : pool.meeting(demand, now);
}

/** True if a session that serves the model may see the request, whether or not the path to it was lost. */
export function isServedBy(nodes: ModelNodes | undefined, trust: Trust): boolean {
  if (nodes === undefined) return false;
  const { ready, suspected } = trusted(nodes, trust);
  return ready.length + suspected.length > 0;
}

/** The candidates that were not tried yet. Returns the list itself if none was tried. */
export function withoutTried<T extends { readonly session: string }>(
  candidates: readonly T[],
  tried: ReadonlySet<string>,
): readonly T[] {
  return tried.size === 0 ? candidates : candidates.filter(({ session }) => !tried.has(session));
}

interface Remainder {
  avoided: ReadonlySet<string>;
  rest: readonly Candidate[];
}

/** Maximum number of remembered remainders per list. Requests with and without a right to probe avoid other nodes. */
const REMAINDERS_MAX = 4;
const remainders = new WeakMap<readonly Candidate[], Remainder[]>();

/**
 * The candidates that are not avoided. Requests that avoid the same sessions get the same array, so what policies
 * remember by list stays valid while a breaker is open.
 */
export function withoutAvoided(
  candidates: readonly Candidate[],
  avoided: ReadonlySet<string> | undefined,
): readonly Candidate[] {
  if (avoided === undefined) return candidates;
  const known = remainders.get(candidates) ?? [];
  const same = known.find((one) => isSameSet(one.avoided, avoided));
  if (same !== undefined) return same.rest;
  const others = candidates.filter(({ session }) => !avoided.has(session));
  const rest = others.length === candidates.length ? candidates : others;
  remainders.set(candidates, [{ avoided, rest }, ...known].slice(0, REMAINDERS_MAX));
  return rest;
}

function isSameSet(one: ReadonlySet<string>, other: ReadonlySet<string>): boolean {
  if (one.size !== other.size) return false;
  for (const member of one) if (!other.has(member)) return false;
  return true;
}

/** When the node's registry record last changed, in milliseconds since 1970. */
export function changedAt(candidate: Candidate): number {
  // biome-ignore lint/style/noRestrictedGlobals: reads a text, asks no clock
  return candidate instanceof Serving ? Date.parse(candidate.entry.updated_at) : 0;
}

function trusted(nodes: ModelNodes, trust: Trust): TrustedPool {
  const key = trustsAllAdmitted(trust) ? trust.own : trust;
  let known = remembered.get(nodes);
  if (known === undefined) {
    known = new Map();
    remembered.set(nodes, known);
  }
  const before = known.get(key);
  if (before?.follow() === true) return before;
  const made = new TrustedPool(nodes, trust);
  keep(known, key, made, TRUSTS_MAX);
  return made;
}

function keep<K, V>(map: Map<K, V>, key: K, value: V, max: number): void {
  map.delete(key);
  map.set(key, value);
  const oldest = map.keys().next().value;
  if (map.size > max && oldest !== undefined) map.delete(oldest);
}
