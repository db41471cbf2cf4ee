/** Lets a learned policy change the shares that the quadratic program plans. Pure, except that it remembers. */
import { ArrivalHistory, entryStates } from '../learned/entry-state.ts';
import { type LearnedPolicy, means, shapedShares } from '../learned/learned-policy.ts';
import type { MergedModel } from './merge-origins.ts';
import { roomOf, sum } from './share-solver.ts';
import type { ObservedPlace } from './traffic-tracker.ts';

interface Planned {
  merged: MergedModel;
  /** The places that are planned, and the shares of the QP by origin and place. */
  there: readonly ObservedPlace[];
  shares: readonly (readonly number[])[];
  /** Expected requests, and round trips to the places in seconds, by origin. */
  expected: readonly number[];
  tripsS: readonly (readonly number[])[];
  usdKwh(region: string): number;
}

export class LearnedShares {
  readonly #policy: LearnedPolicy;
  readonly #slotS: number;
  /** By model. */
  readonly #models = new Map<string, { history: ArrivalHistory; regions: string; previous: Float64Array }>();

  constructor(policy: LearnedPolicy, slotS: number) {
    this.#policy = policy;
    this.#slotS = slotS;
  }

  /** `shares[origin][place]` with the policy's factors; rows sum to 1. */
  of({ merged, there, shares, expected, tripsS, usdKwh }: Planned): number[][] {
    const { origins } = merged;
    // The policy plans a square: each region may send and serve.
    const regions = [...new Set([...there.map(({ region }) => region), ...origins.map(({ origin }) => origin)])];
    const [rowAt, placeAt] = [
      regions.map((region) => origins.findIndex(({ origin }) => origin === region)),
      regions.map((region) => there.findIndex((place) => place.region === region)),
    ];
    const byOrigin = (values: readonly number[]) => rowAt.map((row) => values[row] ?? 0);
    const byPlace = (of: (place: ObservedPlace) => number, otherwise: number) =>
      placeAt.map((at) => {
        const place = there[at];
        return place === undefined ? otherwise : of(place);
      });
    const planned = Float64Array.from({ length: regions.length ** 2 }, (_, entry) => {
      const [row, at] = [rowAt[Math.floor(entry / regions.length)], placeAt[entry % regions.length]];
      return shares[row ?? -1]?.[at ?? -1] ?? 0;
    });
    const known = this.#models.get(merged.model);
    const names = regions.join('\n');
    // Regions that came or left change the meaning of each row: the history starts again.
    const same = known?.regions === names ? known : undefined;
    const history = same?.history ?? new ArrivalHistory();
    const came = byOrigin(origins.map(({ arrived }) => arrived));
    const state = entryStates({
      expected: byOrigin(expected),
      next: byOrigin(expected),
      came,
      history,
      workS: sum(there.map((place) => place.serviceS)) / there.length,
      roomS: byPlace((place) => Math.max(1, roomOf(place) * place.serviceS * this.#slotS), 1),
      backlogS: byPlace(({ waiting, serviceS }) => waiting * serviceS, 0),
      use: byPlace(useOf, 0),
      prices: byPlace(({ region }) => usdKwh(region), 0),
      latencyS: (from, to) => (tripsS[rowAt[from] ?? -1]?.[placeAt[to] ?? -1] ?? Number.POSITIVE_INFINITY) / 2,
      planned,
      previous: same?.previous ?? planned,
    });
    history.observe(came);
    const shaped = shapedShares(planned, means(this.#policy.allShapes(state)), regions.length, 1);
    this.#models.set(merged.model, { history, regions: names, previous: shaped });
    return origins.map(({ origin }) => {
      const first = regions.indexOf(origin) * regions.length;
      return there.map(({ region }) => shaped[first + regions.indexOf(region)] ?? 0);
    });
  }

  forget(model: string): void {
    this.#models.delete(model);
  }
}

const useOf = ({ own, others, replicas, concurrency }: ObservedPlace) =>
  Math.min(1, Math.max(0, own + others) / (replicas * concurrency));
