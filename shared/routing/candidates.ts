import type { RegistryEntry } from '../lattice/node.ts';
import type { LiveNode, LiveNodes } from './live.ts';
import type { NodeLoad } from './load.ts';
import type { ModelNodes } from './nodes.ts';
import { type Requirement, satisfied, satisfies } from './requirements.ts';
import { isTrusted, type Trust, trustsAllAdmitted } from './trust.ts';

/** A session that a request could go to, as policies see it. */
export interface Candidate {
  session: string;
  provider: string;
  cluster: string;
  region?: string | undefined;
  tier: string;
  /** Class of shared/hardware; absent where it has no GPU. */
  gpu?: string | undefined;
  /** How many. */
  gpus?: number | undefined;
  /** Undefined: not known, or too long ago. */
  readonly load?: NodeLoad | undefined;
  /** Requests on their way to it or back, of this isolate or agent alone. */
  readonly inFlight: number;
  /** `inFlight` when the load came: what it has more now is not in the load yet. */
  readonly inFlightThen?: number | undefined;
  /** Milliseconds since the epoch. */
  jobEndsAt?: number | undefined;
  /** Names the key that clients seal to it with; absent: it opens nothing sealed. */
  readonly sealKid?: string | undefined;
}

/** Points to what is known of the node for seconds only: it changes without a new list. */
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

/** What a request demands of the nodes that serve it, beside trust. */
export interface Demand {
  require: readonly Requirement[];
  /** Only orders the candidates: those that have most of it stand alone. */
  prefer: readonly Requirement[];
  /** As they were written: the same words share one list. */
  words: string;
}

export const NO_DEMAND: Demand = { require: [], prefer: [], words: '' };

/** Candidates of one model for one trust set and one demand. */
export interface Pool {
  /** Those that a request may go to now. */
  readonly ready: readonly Candidate[];
  /** The best of them by what is preferred; the same array where nothing is. */
  readonly preferred: readonly Candidate[];
  /** Those that would serve it but for a lost path: worth a wait when no other node is there. */
  readonly suspected: readonly Candidate[];
}

const EMPTY: Pool = { ready: [], preferred: [], suspected: [] };

interface Trusted extends Pool {
  version: number;
  /** By the demand's words and, where time plays a part, by the second. */
  demanded: Map<string, Pool>;
}

/** Whom a model's nodes are remembered for: more trust sets than this are rarely in use at once, and lists are as long as the nodes. */
const TRUSTS_MAX = 32;
/** Demands remembered for each of them. */
const DEMANDS_MAX = 16;

/** By trust. Trusts in all admitted nodes share one entry, keyed by their own issuer. */
const remembered = new WeakMap<ModelNodes, Map<Trust | string, Trusted>>();

/**
 * The sessions that serve a model now, may see the request and have what it requires. Each node is looked at once for each change
 * of the model's nodes, not once per request.
 */
export function poolFor(nodes: ModelNodes | undefined, trust: Trust, demand: Demand, now: number): Pool {
  if (nodes === undefined) return EMPTY;
  const pool = trusted(nodes, trust);
  return demand.words === '' ? pool : demanded(pool, nodes, demand, now);
}

/** Of a pool's list those that were not tried yet: the list itself where none was. */
export function untried<T extends { readonly session: string }>(
  candidates: readonly T[],
  tried: ReadonlySet<string>,
): readonly T[] {
  return tried.size === 0 ? candidates : candidates.filter(({ session }) => !tried.has(session));
}

/** When what the registry says of it last changed; milliseconds since the epoch. */
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

function demanded(pool: Trusted, nodes: ModelNodes, demand: Demand, now: number): Pool {
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

/** Those that have most of what is preferred. */
function best(
  ready: readonly Candidate[],
  prefer: readonly Requirement[],
  model: string,
  now: number,
): readonly Candidate[] {
  if (prefer.length === 0) return ready;
  const scores = ready.map((one) => (one instanceof Serving ? satisfied(one.entry, prefer, model, now) : 0));
  const most = Math.max(0, ...scores);
  return ready.filter((_, at) => scores[at] === most);
}

function keep<K, V>(map: Map<K, V>, key: K, value: V, max: number): void {
  map.delete(key);
  map.set(key, value);
  const oldest = map.keys().next().value;
  if (map.size > max && oldest !== undefined) map.delete(oldest);
}
