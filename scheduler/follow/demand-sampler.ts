/** Counts requests by kind and slot, fits kinds again, and forecasts the slots ahead. */
import type { RequestKind } from '../../shared/routing/kinds/request-kind.ts';
import { SchedulerError } from '../errors.ts';
import { type KindCount, kindCounts } from '../live/kind-counts.ts';
import { knownModel } from '../live/live-nodes.ts';
import type { PlanningContext } from '../live/observation.ts';
import type { FittedKind } from '../workload/request-kinds.ts';
import { DemandForecaster, type ExpectedDemand, slotsOf } from './demand-forecaster.ts';
import { countedKinds, type FittedKinds, fitLiveKinds } from './fit-kinds.ts';
import { addConfusion, type Confusion } from './judged-groups.ts';
import type { FollowedModel } from './network-view.ts';
import { SlotCounts } from './slot-counts.ts';
import type { CountedLine } from './slot-records.ts';

/** Maximum number of models that are followed: those with the highest forecast. */
const MODELS_MAX = 32;
/** Number of slots after which kinds are fitted again. */
const KINDS_EVERY_SLOTS = 60;
/** Number of slots before the last look that are requested again, because slow responses are counted late. */
const REREAD_SLOTS = 8;
/**
 * Maximum number of slots of one request to a gateway. A gateway returns at most 2,880 slots, of at most seven days.
 */
const WINDOW_SLOTS_MAX = 2_800;
const WINDOW_S_MAX = 6 * 86_400;
/** If a gateway did not answer in time, the next request is for this share of the slots. */
const WINDOW_SHARE = 0.25;
/** Assumed delay between a response and its usage record. */
const REPORT_MS = 1_000;
/**
 * A slot is observed when at most this share of its requests may still be missing. If responses are short, a slot is
 * observed when it ends; otherwise some slots later.
 */
const MISSING_SHARE = 0.2;
/** A slot counts as observed after at most this many further slots, even if its responses take longer. */
const LAG_MAX = 3;

interface Followed {
  name: string;
  counted: SlotCounts;
  expecter: DemandForecaster;
  fitted: FittedKinds | undefined;
  fittedAt: number;
  /** How the gateway judges the kinds; undefined: it has not said so for the current kinds. */
  confusion: Confusion | undefined;
  /**
   * First slot that this process requested from the gateway. Counts of earlier slots are from the history file, or
   * unknown.
   */
  knownFrom: number;
}

/** The result of one look for one model. */
export interface ModelSample extends FollowedModel {
  followed: Followed;
  count: KindCount;
  /** The slot after the last observed one. */
  end: number;
  expectation: ExpectedDemand;
}

export interface DemandSamplerOptions {
  slotS: number;
  /** Number of slots ahead that are forecast. */
  horizon: number;
  /** Number of slots after which the load repeats. */
  season: number;
  /** True if fitted kinds are published at the gateway. */
  publish: boolean;
}

export class DemandSampler {
  readonly #context: Pick<PlanningContext, 'gateway' | 'catalogue'>;
  readonly #options: DemandSamplerOptions;
  readonly #out: (line: string) => void;
  readonly #before: readonly CountedLine[];
  readonly #models = new Map<string, Followed>();
  /** Slots before this one have been requested from the gateway. */
  #askedTo = 0;
  /** Maximum number of slots of the next request. It decreases if the gateway does not answer in time. */
  #window: number;

  /** `before`: records that an earlier run wrote. */
  constructor(
    context: Pick<PlanningContext, 'gateway' | 'catalogue'>,
    options: DemandSamplerOptions,
    out: (line: string) => void,
    before: readonly CountedLine[],
  ) {
    this.#context = context;
    this.#options = options;
    this.#out = out;
    this.#before = before;
    this.#window = Math.min(WINDOW_SLOTS_MAX, Math.floor(WINDOW_S_MAX / options.slotS));
  }

  /** Returns the counts of the last slots and the forecasts of the next slots. */
  async look(now: number): Promise<ModelSample[]> {
    const { slotS } = this.#options;
    const most = this.#window;
    const slots = this.#askedTo === 0 ? most : Math.min(most, now - this.#askedTo + REREAD_SLOTS);
    const first = now - slots;
    let counts = await this.#counts(slots + 1);
    const refitted = await this.#fitKinds(counts, now);
    if (refitted) counts = await this.#counts(most);
    const looks = [...counts].flatMap(([name, count]): ModelSample[] => {
      const model = knownModel(this.#context.catalogue, name);
      const followed = this.#models.get(name);
      if (model === undefined || followed === undefined) return [];
      const { fitted } = followed;
      const counts = fitted !== undefined && count.kinds.length > 0 && sameKinds(fitted.published, count.kinds);
      const { kinds, published } = counts ? fitted : countedKinds(count);
      this.#setKinds(name, followed, kinds);
      // Slots that an earlier run recorded are not requested again. The gateway has no data of slots before its first
      // request, which differs from zero requests.
      const { last } = followed.counted;
      if (this.#askedTo === 0 || refitted)
        followed.knownFrom = last === undefined ? Math.min(now, ...count.slots.keys()) : last + 1;
      const from = Math.max(first, followed.knownFrom);
      followed.counted.take(count, from, now);
      followed.confusion = addConfusion(followed.confusion, count.misjudged.confusion, kinds.length);
      const end = now - lagOf(count, slotS);
      const history = followed.counted.history(end);
      const expectation = followed.expecter.expect(history, end, now - end, this.#options.horizon);
      return [{ model, name, kinds, published, followed, count, end, expectation }];
    });
    this.#askedTo = now;
    const busy = (look: ModelSample) => look.expectation.forecast.mean.flat().reduce((sum, one) => sum + one, 0);
    return looks.sort((a, b) => busy(b) - busy(a)).slice(0, MODELS_MAX);
  }

  /**
   * @throws SchedulerError `gateway` if the gateway did not answer in time; the next request is then for fewer slots
   */
  async #counts(slots: number): Promise<Map<string, KindCount>> {
    const { slotS } = this.#options;
    try {
      return await kindCounts(this.#context.gateway, Math.ceil(slots * slotS), slotS);
    } catch (error) {
      const isLate =
        error instanceof SchedulerError && error.cause instanceof Error && error.cause.name === 'TimeoutError';
      if (isLate && slots >= this.#window) this.#window = Math.max(REREAD_SLOTS, Math.floor(slots * WINDOW_SHARE));
      throw error;
    }
  }

  /** Fits kinds if they are due. Returns true if a gateway will count by other kinds from now on. */
  async #fitKinds(counts: ReadonlyMap<string, KindCount>, now: number): Promise<boolean> {
    let published = false;
    for (const [name, count] of counts) {
      if (knownModel(this.#context.catalogue, name) === undefined) continue;
      const { slotS, season } = this.#options;
      const followed = this.#models.get(name) ?? {
        name,
        counted: new SlotCounts(slotS, slotsOf(season)),
        expecter: new DemandForecaster(season),
        fitted: undefined,
        fittedAt: Number.NEGATIVE_INFINITY,
        confusion: undefined,
        knownFrom: now,
      };
      this.#models.set(name, followed);
      if (followed.fitted !== undefined && now - followed.fittedAt < KINDS_EVERY_SLOTS) continue;
      const fitted = fitLiveKinds(count);
      if (fitted === undefined) continue;
      Object.assign(followed, { fitted, fittedAt: now });
      if (sameKinds(fitted.published, count.kinds)) continue;
      const text = fitted.published.map(
        (kind) => `${kind.name} (${Math.round(kind.input)} + ${Math.round(kind.output)} tokens)`,
      );
      this.#out(`${this.#options.publish ? '' : 'would publish '}kinds of ${name}: ${text.join('; ')}`);
      if (!this.#options.publish) continue;
      const weights = [{ weight: 1 }];
      await this.#context.gateway.put(`/admin/routing/${encodeURIComponent(name)}`, {
        weights,
        kinds: fitted.published,
      });
      published = true;
    }
    return published;
  }

  /** Keeps the slots that an earlier run recorded, if the kinds are still the same. */
  #setKinds(name: string, followed: Followed, kinds: readonly FittedKind[]): void {
    const { counted } = followed;
    const names = kinds.map((kind) => kind.name);
    if (counted.kinds.join('\n') === names.join('\n')) return;
    counted.setKinds(names);
    followed.confusion = undefined;
    for (const { at, slot_s, model, kinds: own, requests } of this.#before) {
      if (model !== name || slot_s !== this.#options.slotS || own.join('\n') !== names.join('\n')) continue;
      counted.set(Math.round(Date.parse(at) / (slot_s * 1e3)), requests);
    }
  }
}

const sameKinds = (a: readonly RequestKind[], b: readonly RequestKind[]): boolean =>
  a.length === b.length &&
  a.every((kind, i) => kind.name === b[i]?.name && kind.input === b[i]?.input && kind.output === b[i]?.output);

/** How many of the newest slots are not observed yet, because some of their responses may not have ended. */
function lagOf({ settleMs }: KindCount, slotS: number): number {
  const slotMs = slotS * 1e3;
  return Math.min(LAG_MAX, Math.max(0, Math.ceil((settleMs + REPORT_MS - MISSING_SHARE * slotMs) / slotMs)));
}
