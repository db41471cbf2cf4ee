/**
 * Several policies plan each slot, one of them for requests, the others in shadow. Each is judged by what its plan would
 * have cost in the slot that came; a challenger that is cheaper with enough evidence plans live, and the champion takes
 * over again by evidence of the same kind. Pure, except that it remembers.
 */
import type { RegionFacts } from '../../live/region-facts.ts';
import { BettingEvidence } from './betting-evidence.ts';
import type { SavedChallenger } from './evidence-file.ts';
import { hindsightCost } from './hindsight-cost.ts';
import { mergeOrigins, type OriginView } from './merge-origins.ts';
import type { LivePlan } from './region-planner.ts';
import { plannablePrices } from './region-prices.ts';

/** A policy: what plans the shares of a slot. */
export interface Contender {
  name: string;
  /** Equal for policies with equal plans; absent: the name. Two files of one name may have different policies. */
  identity?: string;
  plan(views: readonly OriginView[], facts: readonly RegionFacts[]): LivePlan;
}

interface ChampionChallengerOptions {
  slotS: number;
  secondsPerUsd: number;
  smoothness: number;
  /** Plans live at first, and whenever no challenger is better. */
  champion: Contender;
  /** At most `CHALLENGERS_MAX`. */
  challengers: readonly Contender[];
}

export const CHALLENGERS_MAX = 4;
/**
 * A challenger is promoted if it is cheaper by more than this share of the champion's cost, and demoted if it is dearer
 * at all: it must be worth a change.
 */
const MARGIN = 0.01;
/** Relative difference in one slot that counts fully. Larger ones count no more: one odd slot decides nothing. */
const FULL = 0.2;
/** Odds that a promotion needs, times the number of challengers: each has a chance to win by luck. */
const PROMOTE_ODDS = 100;
/** Odds that a demotion needs. Fewer: going back to the champion risks nothing. */
const DEMOTE_ODDS = 20;
/** Slots in shadow before a promotion, also with clear evidence: an hour of 45 s has more than one load. */
const SLOTS_MIN = 80;
/** Each demotion of a policy multiplies the odds of its next promotion by this. */
const AGAIN_FACTOR = 10;

interface Challenger {
  contender: Contender;
  /** Evidence that it is cheaper than the champion, since its last demotion. */
  better: BettingEvidence;
  /** Evidence that it is dearer, since its promotion. */
  worse: BettingEvidence;
  demotions: number;
  /** Sums over the slots of `better`, for people. */
  own: number;
  champions: number;
}

export class ChampionChallenger {
  readonly #options: ChampionChallengerOptions;
  readonly #challengers: Challenger[];
  /** Plans of the last two slots, newest first; undefined: the policy made none. */
  readonly #plans = new Map<Contender, (LivePlan | undefined)[]>();
  #live: Challenger | undefined;

  constructor(options: ChampionChallengerOptions) {
    if (options.challengers.length > CHALLENGERS_MAX) throw new Error(`at most ${CHALLENGERS_MAX} challengers`);
    this.#options = options;
    this.#challengers = options.challengers.map(newChallenger);
  }

  /** The evidence on each challenger. */
  save(): SavedChallenger[] {
    return this.#challengers.map((one) => ({
      identity: this.#identityOf(one.contender),
      live: one === this.#live,
      better: one.better.state,
      worse: one.worse.state,
      demotions: one.demotions,
      own: one.own,
      champions: one.champions,
    }));
  }

  /**
   * Continues with the evidence of an earlier process, on the same challengers and the same champion. Returns a sentence
   * for each challenger with evidence.
   */
  restore(saved: readonly SavedChallenger[]): string[] {
    return this.#challengers.flatMap((one) => {
      const known = saved.find(({ identity }) => identity === this.#identityOf(one.contender));
      if (known === undefined) return [];
      const { live, better, worse, demotions, own, champions } = known;
      one.better = BettingEvidence.from(better);
      one.worse = BettingEvidence.from(worse, 1);
      Object.assign(one, { demotions, own, champions });
      // Only one plans live.
      if (live) this.#live ??= one;
      return [`${one.contender.name} continues${one === this.#live ? ', live' : ''}: ${summaryOf(one)}`];
    });
  }

  /** Evidence is on a pair of policies and on the weights of their costs. */
  #identityOf(contender: Contender): string {
    const { slotS, secondsPerUsd, smoothness, champion } = this.#options;
    const of = ({ name, identity = name }: Contender) => identity;
    return JSON.stringify({ challenger: of(contender), champion: of(champion), slotS, secondsPerUsd, smoothness });
  }

  /** Name of the policy that plans live. */
  get live(): string {
    return (this.#live?.contender ?? this.#options.champion).name;
  }

  /**
   * Judges the plans of the last slot by `views`, and returns the plan of the policy that is live for the next one.
   * `changes`: promotions and demotions with their reasons.
   */
  plan(views: readonly OriginView[], facts: readonly RegionFacts[]): { plan: LivePlan; changes: string[] } {
    const { champion } = this.#options;
    const changes = this.#judge(views, facts);
    const plan = champion.plan(views, facts);
    this.#remember(champion, plan);
    let chosen = plan;
    for (const challenger of this.#challengers) {
      const own = planOrNone(challenger.contender, views, facts);
      this.#remember(challenger.contender, own);
      if (challenger !== this.#live) continue;
      if (own !== undefined) chosen = own;
      // A policy that fails is not judged by its plans: there is none.
      else changes.push(this.#demote(challenger, 'it made no plan'));
    }
    if (this.#challengers.length === 0) return { plan, changes };
    return { plan: { ...chosen, policy: this.live, standings: this.#standings() }, changes };
  }

  #remember(contender: Contender, plan: LivePlan | undefined): void {
    const [last] = this.#plans.get(contender) ?? [];
    this.#plans.set(contender, [plan, last]);
  }

  #judge(views: readonly OriginView[], facts: readonly RegionFacts[]): string[] {
    const { usdKwh } = plannablePrices(facts);
    const slot = { models: mergeOrigins(views), usdKwh: (region: string) => usdKwh.get(region) ?? 0 };
    const costOf = (contender: Contender) => {
      const [plan, before] = this.#plans.get(contender) ?? [];
      return plan === undefined ? Number.NaN : hindsightCost(plan, before, slot, this.#options);
    };
    const champions = costOf(this.#options.champion);
    if (!Number.isFinite(champions) || champions <= 0) return [];
    for (const challenger of this.#challengers) {
      const own = costOf(challenger.contender);
      // A slot without a plan of the challenger says nothing about its plans.
      if (!Number.isFinite(own)) continue;
      const saved = (champions - own) / champions;
      challenger.better.observe((saved - MARGIN) / FULL);
      if (challenger === this.#live) challenger.worse.observe(-saved / FULL);
      challenger.own += own;
      challenger.champions += champions;
    }
    return this.#change();
  }

  #change(): string[] {
    const live = this.#live;
    if (live !== undefined) {
      const odds = live.worse.wealth;
      return odds < DEMOTE_ODDS ? [] : [this.#demote(live, `it is dearer, ${odds.toFixed(0)} : 1`)];
    }
    // Only one change a slot, and none from challenger to challenger: they are not compared with each other.
    const best = this.#challengers
      .filter((one) => one.better.seen >= SLOTS_MIN && one.better.wealth >= this.#oddsOf(one))
      .sort((a, b) => a.own / a.champions - b.own / b.champions)[0];
    if (best === undefined) return [];
    this.#live = best;
    best.worse = new BettingEvidence(1);
    return [`promoted ${best.contender.name}: ${summaryOf(best)}`];
  }

  #oddsOf({ demotions }: Challenger): number {
    return PROMOTE_ODDS * this.#challengers.length * AGAIN_FACTOR ** demotions;
  }

  #demote(challenger: Challenger, why: string): string {
    const text = `demoted ${challenger.contender.name}: ${why}; ${summaryOf(challenger)}`;
    Object.assign(challenger, { ...newChallenger(challenger.contender), demotions: challenger.demotions + 1 });
    this.#live = undefined;
    return text;
  }

  /** A line for each challenger. */
  #standings(): string[] {
    return this.#challengers.map((one) => {
      const state = one === this.#live ? 'live' : 'shadow';
      return `${one.contender.name} (${state}): ${summaryOf(one)}`;
    });
  }
}

const newChallenger = (contender: Contender): Challenger => ({
  contender,
  better: new BettingEvidence(),
  worse: new BettingEvidence(1),
  demotions: 0,
  own: 0,
  champions: 0,
});

function summaryOf({ better, own, champions }: Challenger): string {
  const percent = champions > 0 ? 100 * (own / champions - 1) : 0;
  const sign = percent > 0 ? '+' : '';
  return `cost ${sign}${percent.toFixed(1)} % in ${better.seen} slots, evidence ${better.wealth.toPrecision(2)} : 1`;
}

/** Undefined if the policy fails: a challenger must not end the planner. */
function planOrNone(contender: Contender, views: readonly OriginView[], facts: readonly RegionFacts[]) {
  try {
    const plan = contender.plan(views, facts);
    const usable = plan.models.every(({ regions }) => regions.every(({ share }) => Number.isFinite(share)));
    return usable ? plan : undefined;
  } catch {
    return undefined;
  }
}
