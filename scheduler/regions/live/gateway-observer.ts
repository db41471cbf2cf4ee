import type { PlannerGateway } from '../../live/planner-gateway.ts';
import { type RegionFacts, regionFacts } from '../../live/region-facts.ts';
import type { OriginView } from './merge-origins.ts';
import { Tracker, type TrackerOptions } from './traffic-tracker.ts';

interface GatewayObserverOptions extends TrackerOptions {
  gateway: PlannerGateway;
  /** Models to plan; undefined: all. */
  only: ReadonlySet<string> | undefined;
}

interface Look {
  facts: RegionFacts[];
  /** Undefined after the first look, and while the gateway cannot read its counters. */
  view: OriginView | undefined;
}

/** Reads one gateway's counters once per slot. */
export class GatewayObserver {
  readonly #options: GatewayObserverOptions;
  readonly #tracker: Tracker;
  /** Time of the last look that could be used, milliseconds since the epoch. */
  #lookedAt: number | undefined;

  constructor(options: GatewayObserverOptions) {
    this.#options = options;
    this.#tracker = new Tracker(options);
  }

  get url(): string {
    return this.#options.gateway.url;
  }

  /** @throws SchedulerError if the gateway does not answer */
  async look(now: number): Promise<Look> {
    const { gateway, only } = this.#options;
    const { origin, regions } = await regionFacts(gateway);
    const facts = regions.map((region) => ({
      ...region,
      models: region.models.filter(({ model }) => only === undefined || only.has(model)),
    }));
    const before = this.#lookedAt;
    const observed = this.#tracker.look(facts, before === undefined ? undefined : (now - before) / 1e3);
    // If the gateway could not read its counters, this slot is not observed, and the next look counts the requests of
    // both slots.
    if (observed !== undefined || before === undefined) this.#lookedAt = now;
    return { facts, view: observed && { origin, observed } };
  }
}
