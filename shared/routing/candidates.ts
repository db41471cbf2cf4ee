import type { RegistryEntry } from '../lattice/node-record.ts';
import type { LiveNode, LiveNodes } from './live-nodes.ts';
import type { ModelNodes } from './node-index.ts';
import type { NodeLoad } from './node-load.ts';
import { countSatisfied, type Requirement, satisfies } from './requirements.ts';
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

interface Trusted extends CandidatePool {
  version: number;
  /**
   * Pools by the text of the requirements. If the text contains `time_left`, the key also contains the current second.
   */
  demanded: Map<string, CandidatePool>;
}

/**
 * Maximum number of remembered trust sets per model. Requests rarely use more sets in the same period, and each set has
 * a list as long as the list of nodes.
 */
const TRUSTS_MAX = 32;
/** Maximum number of remembered requirements per trust set. */
const DEMANDS_MAX = 16;

/** Pools by trust. All requests that trust every admitted node share one entry, with our issuer's name as its key. */
const remembered = new WeakMap<ModelNodes, Map<Trust | string, Trusted>>();

/**
 * The candidates that serve a model now, may see the request, and meet its requirements. Each node is checked once per
 * change of the model's nodes, not once per request.
 */
export function candidatePool(
  nodes: ModelNodes | undefined,
  trust: Trust,
  demand: NodeRequirements,
  now: number,
): CandidatePool {
  if (nodes === undefined) return EMPTY;
  const pool = trusted(nodes, trust);
  return demand.words === '' ? pool : demanded(pool, nodes, demand, now);
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

function trusted(nodes: ModelNodes, trust: Trust): Trusted {
  const key = trustsAllAdmitted(trust) ? trust.own : trust;
  let known = remembered.get(nodes);
  if (known === undefined) {
    known = new Map();
    remembered.set(nodes, known);
  }
  const before = known.get(key);
  if (before?.version === nodes.version) return before;
  const listed = (entries: readonly RegistryEntry[]) =>
    entries.filter((entry) => isTrusted(trust, entry)).map((entry) => new Serving(entry, nodes.live));
  const ready = listed(nodes.ready);
  const suspected = listed(nodes.suspected);
  const made = { version: nodes.version, ready, preferred: ready, suspected, demanded: new Map() };
  keep(known, key, made, TRUSTS_MAX);
  return made;
}

function demanded(pool: Trusted, nodes: ModelNodes, demand: NodeRequirements, now: number): CandidatePool {
  const timed = [...demand.require, ...demand.prefer].some(({ key }) => key === 'time_left');
  const key = timed ? `${Math.floor(now / 1000)} ${demand.words}` : demand.words;
  const before = pool.demanded.get(key);
  if (before !== undefined) return before;
  const { require, prefer } = demand;
  const fits = (one: Candidate) =>
    require.length === 0 || (one instanceof Serving && satisfies(one.entry, require, nodes.id, now));
  const ready = pool.ready.filter(fits);
  const made = { ready, preferred: best(ready, prefer, nodes.id, now), suspected: pool.suspected.filter(fits) };
  keep(pool.demanded, key, made, DEMANDS_MAX);
  return made;
}

/** The candidates that meet the most preferences. */
function best(
  ready: readonly Candidate[],
  prefer: readonly Requirement[],
  model: string,
  now: number,
): readonly Candidate[] {
  if (prefer.length === 0) return ready;
  const scores = ready.map((one) => (one instanceof Serving ? countSatisfied(one.entry, prefer, model, now) : 0));
  const most = Math.max(0, ...scores);
  return ready.filter((_, at) => scores[at] === most);
}

function keep<K, V>(map: Map<K, V>, key: K, value: V, max: number): void {
  map.delete(key);
  map.set(key, value);
  const oldest = map.keys().next().value;
  if (map.size > max && oldest !== undefined) map.delete(oldest);
}
