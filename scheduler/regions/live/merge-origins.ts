/**
 * Joins what several gateways observed: each has its own round trips and requests, and all have the same nodes. Pure.
 */
import type { Observed, ObservedPlace } from './traffic-tracker.ts';

/** What the gateway of one region observed. */
export interface OriginView {
  /** Region of the gateway; empty: it has none. */
  origin: string;
  observed: Observed;
}

interface ObservedOrigin {
  origin: string;
  /** Requests that arrived in the slot at the gateways of this region. */
  arrived: number;
  /** Responses of the slot, by region of the node. */
  answered: ReadonlyMap<string, number>;
  roundTripS: ReadonlyMap<string, number>;
}

export interface MergedModel {
  model: string;
  arrived: number;
  places: ObservedPlace[];
  origins: ObservedOrigin[];
}

export function mergeOrigins(views: readonly OriginView[]): MergedModel[] {
  const names = new Set(views.flatMap(({ observed }) => observed.models.map(({ model }) => model)));
  return [...names].map((model) => mergeModel(model, views));
}

function mergeModel(model: string, views: readonly OriginView[]): MergedModel {
  const byRegion = new Map<string, ObservedPlace[]>();
  const origins = new Map<string, ObservedOrigin>();
  for (const { origin, observed } of views) {
    const own = observed.models.find((one) => one.model === model);
    for (const place of own?.places ?? []) byRegion.set(place.region, [...(byRegion.get(place.region) ?? []), place]);
    const before = origins.get(origin);
    const answered = new Map(before?.answered);
    for (const { region, answered: count } of own?.places ?? [])
      answered.set(region, (answered.get(region) ?? 0) + count);
    const roundTripS = new Map(before?.roundTripS);
    for (const [region, seconds] of observed.roundTripS)
      roundTripS.set(region, Math.min(seconds, roundTripS.get(region) ?? seconds));
    origins.set(origin, { origin, arrived: (before?.arrived ?? 0) + (own?.arrived ?? 0), answered, roundTripS });
  }
  const all = [...origins.values()];
  return {
    model,
    arrived: all.reduce((sum, { arrived }) => sum + arrived, 0),
    places: [...byRegion.values()].map(mergePlaces),
    origins: all,
  };
}

/**
 * One place as several gateways see it. Each gateway counts the requests of the other gateways as those of others, so
 * the joint number of others is what no planned gateway sent.
 */
function mergePlaces(seen: readonly ObservedPlace[]): ObservedPlace {
  const [first] = seen;
  if (first === undefined) throw new Error('a place that no gateway sees');
  const sum = (of: (place: ObservedPlace) => number) => seen.reduce((total, place) => total + of(place), 0);
  const most = (of: (place: ObservedPlace) => number) => Math.max(...seen.map(of));
  const services = seen.map(({ serviceS }) => serviceS).filter(Number.isFinite);
  const inEngines = sum(({ own, others }) => own + others) / seen.length;
  return {
    region: first.region,
    replicas: most(({ replicas }) => replicas),
    power: first.power,
    answered: sum(({ answered }) => answered),
    arrived: sum(({ arrived }) => arrived),
    own: sum(({ own }) => own),
    others: seen.length === 1 ? first.others : Math.max(0, inEngines - sum(({ own }) => own)),
    serviceS: services.length > 0 ? Math.min(...services) : Number.NaN,
    concurrency: most(({ concurrency }) => concurrency),
    waiting: most(({ waiting }) => waiting),
  };
}
