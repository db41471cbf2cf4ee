/** Converts a gateway's counters to the data of a slot: demand, service times and round trips. Pure. */
import type { ModelFacts, RegionFacts } from '../../live/region-facts.ts';
import { type NodePower, NodePowerEstimate } from './node-power.ts';

/** A model's nodes in one region. */
export interface ObservedPlace {
  region: string;
  replicas: number;
  /** Power of one node. */
  power: NodePower;
  /** Responses in the slot from this region's nodes. */
  answered: number;
  /**
   * Requests that arrived in the slot: `answered`, plus the increase of requests in the engines since the last slot.
   */
  arrived: number;
  /** Mean number of requests in the engines that this gateway sent. */
  own: number;
  /** Mean number of requests in the engines that this gateway did not send, such as another gateway's. */
  others: number;
  /** Seconds of one response without queueing; NaN: never measured, here or elsewhere. */
  serviceS: number;
  /** Requests that a node serves concurrently. */
  concurrency: number;
  /** Requests that wait in the queues of the engines. */
  waiting: number;
}

interface ObservedModel {
  model: string;
  /** Requests that arrived in the slot. */
  arrived: number;
  places: ObservedPlace[];
}

export interface Observed {
  models: ObservedModel[];
  /** Round-trip time in seconds, by region; absent: never measured. */
  roundTripS: ReadonlyMap<string, number>;
}

export interface TrackerOptions {
  /** Seconds of a slot: the planned time between two calls of `look`. */
  slotS: number;
  /** Assumed concurrency of a node if its engine was never seen with a queue. */
  concurrency: number;
  /** Power limit of one GPU of a class, watts; `null`: of a node without a GPU. */
  watts(gpu: string | null): number;
}

/** Number of mean response times that are kept. The lowest mean counts as the time without queueing. */
const SERVICE_SLOTS = 20;
/**
 * Weight of the newest slot in the estimate of other sources. With a weight of 1, two planners that both make space for
 * each other would oscillate.
 */
const OTHERS_WEIGHT = 0.3;
/**
 * Minimum number of responses for a mean, and of round trips for a quantile. With fewer, the result is too inaccurate.
 */
const ANSWERS_MIN = 5;
/**
 * Quantile of the measured round trips that counts. The quantile is low, because load at the gateway lengthens the long
 * round trips.
 */
const ROUND_TRIP_QUANTILE = 0.25;
/**
 * A node's claimed number of requests counts only up to this multiple of its concurrency; a false claim cannot attract
 * more.
 */
const CLAIM_FACTOR_MAX = 4;
/** Maximum number of pairs of region and model that are remembered. */
const REMEMBERED_MAX = 65_536;

interface Memory {
  /** The gateway's counter of responses at the last look; undefined: it was never read. */
  answered: number | undefined;
  serviceS: number;
  /** Responses, and their seconds, since the last entry of `means`. */
  service: { answers: number; seconds: number };
  /** Mean seconds of at least `ANSWERS_MIN` responses each, newest last. */
  means: number[];
  /** Maximum number of requests that a node was seen to run while others waited there. */
  full: number;
  /** Requests in the engines at the last look; node claims count up to `CLAIM_FACTOR_MAX`. */
  inEngines: number;
  /** Smoothed number of requests in the engines from other sources. Noise may make it negative. */
  others: number;
  power: NodePowerEstimate;
}

/**
 * Remembers the counters of the last look. If a counter decreased, the gateway has restarted, and the new value counts
 * from 0.
 */
export class Tracker {
  readonly #options: TrackerOptions;
  readonly #memory = new Map<string, Memory>();
  readonly #trips = new Map<string, readonly number[]>();
  readonly #roundTripS = new Map<string, number>();
  #looked = false;

  constructor(options: TrackerOptions) {
    this.#options = options;
  }

  /**
   * `sinceS`: seconds since the last look; longer than a slot if the gateway did not answer in between. Returns
   * undefined after the first look, and while the gateway cannot read its counters, because there is nothing to
   * compare.
   */
  look(facts: readonly RegionFacts[], sinceS = this.#options.slotS): Observed | undefined {
    const seconds = Math.max(sinceS, this.#options.slotS);
    const models = new Map<string, ObservedModel>();
    let isCounted = facts.some((region) => region.models.some(({ answered }) => answered !== null));
    for (const region of facts) {
      this.#measure(region);
      for (const model of region.models) {
        if (model.answered === null) isCounted = false;
        const place = this.#place(region.region, model, seconds);
        const known = models.get(model.model) ?? { model: model.model, arrived: 0, places: [] };
        models.set(model.model, known);
        known.arrived += place.arrived;
        known.places.push(place);
      }
    }
    for (const { places } of models.values()) guessServices(places);
    const before = this.#looked;
    if (isCounted) this.#looked = true;
    if (!before || !isCounted) return undefined;
    return { models: [...models.values()], roundTripS: new Map(this.#roundTripS) };
  }

  /** `sinceS`: seconds since the last look; at least a slot. */
  #place(region: string, facts: ModelFacts, sinceS: number): ObservedPlace {
    const { model, replicas, kinds, running, waiting, answered, service_s } = facts;
    const memory = this.#of(`${region}\n${model}`);
    const isKnown = memory.answered !== undefined;
    let [count, seconds] = [0, 0];
    if (answered !== null && service_s !== null) {
      const before = memory.answered ?? 0;
      const restarted = answered < before;
      count = answered - (restarted ? 0 : before);
      seconds = Math.max(0, service_s - (restarted ? 0 : memory.serviceS));
      [memory.answered, memory.serviceS] = [answered, service_s];
    }
    const service = memory.service;
    service.answers += count;
    service.seconds += seconds;
    // Responses are collected until there are `ANSWERS_MIN`, so that a model with rare requests also gets a service
    // time.
    if (service.answers >= ANSWERS_MIN) {
      memory.means.push(service.seconds / service.answers);
      if (memory.means.length > SERVICE_SLOTS) memory.means.shift();
      memory.service = { answers: 0, seconds: 0 };
    }
    // The first value of a counter includes responses from before this planner started. They count for the service
    // time, but not for this slot's demand.
    if (!isKnown) [count, seconds] = [0, 0];
    if (waiting > 0 && replicas > 0) memory.full = Math.max(memory.full, Math.ceil(running / replicas));
    // Little's law: seconds of service per second are the mean number of this gateway's requests.
    const own = seconds / sinceS;
    memory.others += OTHERS_WEIGHT * (running + waiting - own - memory.others);
    const inEngines = Math.min(running + waiting, CLAIM_FACTOR_MAX * this.#options.concurrency * replicas);
    const arrived = (Math.max(0, count + inEngines - memory.inEngines) * this.#options.slotS) / sinceS;
    memory.inEngines = inEngines;
    const nodes = Math.max(1, replicas);
    const watts = kinds.reduce((sum, kind) => sum + kind.replicas * this.#wattsOf(kind), 0) / nodes;
    const limitW = kinds.length === 0 ? this.#options.watts(null) : watts;
    const concurrency = memory.full > 0 ? memory.full : this.#options.concurrency;
    if (facts.power.nodes > 0)
      memory.power.observe(limitW, facts.power.watts / facts.power.nodes, running / (nodes * concurrency));
    return {
      region,
      replicas,
      power: memory.power.of(limitW),
      answered: count,
      arrived,
      own,
      others: Math.max(0, memory.others),
      serviceS: memory.means.length > 0 ? Math.min(...memory.means) : service.seconds / service.answers,
      concurrency,
      waiting,
    };
  }

  #wattsOf({ gpu, gpus }: { gpu: string | null; gpus: number }): number {
    return gpu === null ? this.#options.watts(null) : gpus * this.#options.watts(gpu);
  }

  #of(key: string): Memory {
    let memory = this.#memory.get(key);
    if (memory === undefined) {
      memory = {
        answered: undefined,
        serviceS: 0,
        service: { answers: 0, seconds: 0 },
        means: [],
        full: 0,
        inEngines: 0,
        others: 0,
        power: new NodePowerEstimate(),
      };
      if (this.#memory.size >= REMEMBERED_MAX) this.#memory.clear();
      this.#memory.set(key, memory);
    }
    return memory;
  }

  /** Uses the round trips since the last look; if there are too few, the known value stays. */
  #measure({ region, round_trips }: RegionFacts): void {
    if (round_trips === null) return;
    const { at_most_s: bounds, counts } = round_trips;
    const before = this.#trips.get(region) ?? [];
    const restarted = counts.some((count, at) => count < (before[at] ?? 0));
    const fresh = counts.map((count, at) => count - (restarted ? 0 : (before[at] ?? 0)));
    if (sumOf(fresh) < ANSWERS_MIN && this.#roundTripS.has(region)) return;
    if (this.#trips.size >= REMEMBERED_MAX) this.#trips.clear();
    this.#trips.set(region, counts);
    const value = quantile(bounds, fresh, ROUND_TRIP_QUANTILE);
    if (value !== undefined) this.#roundTripS.set(region, value);
  }
}

/** A place without a measured response gets the mean service time of the places with one. */
function guessServices(places: ObservedPlace[]): void {
  const known = places.map(({ serviceS }) => serviceS).filter(Number.isFinite);
  if (known.length === 0) return;
  const mean = sumOf(known) / known.length;
  for (const place of places) if (!Number.isFinite(place.serviceS)) place.serviceS = mean;
}

/**
 * Computes a quantile from counts in buckets, assuming an even spread within each. Undefined if the counts are empty.
 */
export function quantile(bounds: readonly number[], counts: readonly number[], q: number): number | undefined {
  const total = sumOf(counts);
  if (total <= 0) return undefined;
  let below = 0;
  for (const [at, count] of counts.entries()) {
    const from = at === 0 ? 0 : (bounds[at - 1] ?? 0);
    const to = bounds[at] ?? from;
    if (below + count >= q * total && count > 0) return from + ((to - from) * (q * total - below)) / count;
    below += count;
  }
  return bounds.at(-1);
}

function sumOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}
