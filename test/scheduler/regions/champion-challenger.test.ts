/** Policies of regions that compete: what it takes to plan live, and what ends it. */
import { describe, expect, it } from 'vitest';
import { BettingEvidence } from '../../../scheduler/regions/live/betting-evidence.ts';
import { ChampionChallenger, type Contender } from '../../../scheduler/regions/live/champion-challenger.ts';
import { hindsightCost } from '../../../scheduler/regions/live/hindsight-cost.ts';
import { mergeOrigins, type OriginView } from '../../../scheduler/regions/live/merge-origins.ts';
import { type LivePlan, LivePlanner } from '../../../scheduler/regions/live/region-planner.ts';
import { seededRandom } from '../../../scheduler/simulator/random.ts';

const WEIGHTS = { slotS: 45, secondsPerUsd: 0, smoothness: 0.05 };

interface Told {
  tripS: number;
  replicas?: number;
}

/** What a gateway observed: `arrived` requests of 4 s, and the round trip to each region. */
function view(regions: Record<string, Told>, arrived = 100): OriginView {
  const places = Object.entries(regions).map(([region, { replicas = 4 }]) => ({
    region,
    replicas,
    power: { busyW: 500, idleW: 100 },
    answered: arrived / Object.keys(regions).length,
    arrived: arrived / Object.keys(regions).length,
    own: 0,
    others: 0,
    serviceS: 4,
    concurrency: 8,
    waiting: 0,
  }));
  const roundTripS = new Map(Object.entries(regions).map(([region, { tripS }]) => [region, tripS]));
  return { origin: '', observed: { models: [{ model: 'm', arrived, places }], roundTripS } };
}

const planOf = (shares: Record<string, number>): LivePlan => ({
  models: [
    {
      model: 'm',
      expected: 100,
      regions: Object.entries(shares).map(([region, share]) => ({
        region,
        share,
        shareNow: share,
        roundTripS: 0,
        usdKwh: 0,
        replicas: 4,
        warm: 4,
      })),
      spill: {},
      origins: [],
      now: { responseS: 0, usdPerHour: 0 },
      planned: { responseS: 0, usdPerHour: 0 },
      overload: 0,
    },
  ],
  notes: [],
});

const always = (name: string, shares: Record<string, number>): Contender => ({ name, plan: () => planOf(shares) });
const slotOf = (seen: OriginView) => ({ models: mergeOrigins([seen]), usdKwh: () => 0 });

describe('evidence', () => {
  it('without an edge reaches 20 to 1 in at most one of twenty runs, however often one looks', () => {
    let reached = 0;
    for (let seed = 1; seed <= 1_000; seed++) {
      const [random, evidence] = [seededRandom(seed), new BettingEvidence()];
      let most = 0;
      for (let n = 0; n < 500; n++) {
        evidence.observe(2 * random() - 1);
        most = Math.max(most, evidence.wealth);
      }
      if (most >= 20) reached++;
    }
    expect(reached).toBeLessThanOrEqual(50);
  });

  it('with an edge is found soon, and a late change, too, by a detector', () => {
    const [random, evidence, detector] = [seededRandom(1), new BettingEvidence(), new BettingEvidence(1)];
    for (let n = 0; n < 100; n++) evidence.observe(0.2 + 0.5 * (2 * random() - 1));
    expect(evidence.wealth).toBeGreaterThan(100);
    for (let n = 0; n < 2_000; n++) detector.observe(-0.2 + 0.5 * (2 * random() - 1));
    expect(detector.wealth).toBeLessThan(20);
    for (let n = 0; n < 200; n++) detector.observe(0.2 + 0.5 * (2 * random() - 1));
    expect(detector.wealth).toBeGreaterThan(20);
  });

  it('ignores what is no number, counts an odd value like 1, and has its bounds', () => {
    const evidence = new BettingEvidence();
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) evidence.observe(value);
    expect(evidence).toMatchObject({ seen: 0, wealth: 1 });
    for (let n = 0; n < 10_000; n++) evidence.observe(1e300);
    expect(evidence.wealth).toBe(1e12);
    for (let n = 0; n < 10_000; n++) evidence.observe(n % 3 === 0 ? 1 : -1);
    expect(evidence.wealth).toBeGreaterThan(0);
  });
});

describe('the cost of a plan in hindsight', () => {
  const cost = (shares: Record<string, number>, seen: OriginView, before?: Record<string, number>) =>
    hindsightCost(planOf(shares), before && planOf(before), slotOf(seen), WEIGHTS);

  it('is network and service, and more if shares change', () => {
    const seen = view({ near: { tripS: 0.01 }, far: { tripS: 0.31 } });
    expect(cost({ near: 1, far: 0 }, seen)).toBeCloseTo(4.01, 2);
    expect(cost({ near: 0.5, far: 0.5 }, seen)).toBeCloseTo(4.16, 2);
    expect(cost({ near: 1, far: 0 }, seen, { near: 0, far: 1 })).toBeCloseTo(4.01 + 2 * 0.05, 2);
  });

  it('has the wait of a region that gets more than it can serve', () => {
    const seen = view({ near: { tripS: 0.01 }, far: { tripS: 0.31 } }, 600);
    // 2,400 s of work for 32 places of 45 s: 1,032 s are above 95 %, and each place is behind by 32 s at the end.
    expect(cost({ near: 1, far: 0 }, seen)).toBeGreaterThan(4.01 + 16);
    expect(cost({ near: 0.5, far: 0.5 }, seen)).toBeLessThan(5.5);
  });

  it('of a region that is gone is that of its spill, and is unknown without requests or places', () => {
    const left = view({ near: { tripS: 0.01, replicas: 0 }, far: { tripS: 0.31 } });
    expect(cost({ near: 1, far: 0 }, left)).toBeCloseTo(4.31, 2);
    expect(cost({ near: 1, far: 0 }, view({ near: { tripS: 0.01 } }, 0))).toBeNaN();
    expect(cost({ near: 1 }, view({ near: { tripS: 0.01, replicas: 0 } }))).toBeNaN();
  });
});

/** Runs slots; `tripS(slot)`: the round trip to the far region. Returns the slots with a change, and their texts. */
function run(
  challengers: readonly Contender[],
  slots: number,
  tripS: (slot: number) => number,
  champion = always('default', { near: 1, far: 0 }),
) {
  const contest = new ChampionChallenger({ ...WEIGHTS, champion, challengers });
  const changes: { slot: number; text: string }[] = [];
  const policies: (string | undefined)[] = [];
  for (let slot = 1; slot <= slots; slot++) {
    const seen = view({ near: { tripS: 1 }, far: { tripS: tripS(slot) } });
    const found = contest.plan([seen], []);
    changes.push(...found.changes.map((text) => ({ slot, text })));
    policies.push(found.plan.policy);
  }
  return { changes, policies };
}

describe('a challenger', () => {
  const far = always('far', { near: 0, far: 1 });

  it('that is cheaper plans live after eighty slots, and the champion again when it is not', () => {
    const random = seededRandom(3);
    const { changes, policies } = run([far], 1_000, (slot) => (slot <= 400 ? 0.2 : 1.8) + 0.4 * (random() - 0.5));
    expect(changes.map(({ text }) => text)).toEqual([
      expect.stringMatching(/^promoted far: cost -1\d\.\d % in \d+ slots, evidence \S+ : 1$/),
      expect.stringMatching(/^demoted far: it is dearer, \d+ : 1; cost /),
    ]);
    const [promoted, demoted] = changes.map(({ slot }) => slot);
    expect(promoted).toBe(81);
    expect(demoted).toBeGreaterThan(400);
    expect(demoted).toBeLessThan(520);
    expect(policies[79]).toBe('default');
    expect(policies[80]).toBe('far');
    expect(policies.at(-1)).toBe('default');
  });

  it('that is level is not promoted in a week of noise', () => {
    const random = seededRandom(4);
    expect(run([far], 13_440, () => 1 + 1.5 * (random() - 0.5)).changes).toEqual([]);
  });

  it('keeps its evidence and its place over restarts', () => {
    const contestOf = (champion = 'default') =>
      new ChampionChallenger({ ...WEIGHTS, champion: always(champion, { near: 1, far: 0 }), challengers: [far] });
    const seen = view({ near: { tripS: 1 }, far: { tripS: 0.2 } });
    let contest = contestOf();
    const policies: (string | undefined)[] = [];
    const promotions: number[] = [];
    for (let slot = 1; slot <= 100; slot++) {
      const { plan, changes } = contest.plan([seen], []);
      policies.push(plan.policy);
      if (changes.length > 0) promotions.push(slot);
      if (slot % 30 !== 0) continue;
      const saved = contest.save();
      contest = contestOf();
      expect(contest.restore(saved)).toEqual([expect.stringMatching(/^far continues(, live)?: cost -\d/)]);
    }
    // A restart loses the slot in which it happens: there is no earlier plan to judge.
    expect(promotions).toEqual([83]);
    expect(policies.slice(83)).toEqual(new Array(17).fill('far'));
    // Evidence against another champion does not count.
    expect(contestOf('other').restore(contest.save())).toEqual([]);
  });

  it('that was demoted needs more evidence the second time', () => {
    const random = seededRandom(5);
    const cheap = (slot: number) => slot <= 150 || slot > 400;
    // Three percent cheaper: the odds of 100 to 1 take longer than the eighty slots.
    const { changes } = run([far], 4_000, (slot) => (cheap(slot) ? 0.85 : 2.5) + 0.8 * (random() - 0.5));
    const slots = changes.map(({ slot }) => slot);
    expect(changes.map(({ text }) => text.split(' ')[0]).slice(0, 3)).toEqual(['promoted', 'demoted', 'promoted']);
    expect((slots[2] ?? 0) - (slots[1] ?? 0)).toBeGreaterThan(slots[0] ?? 0);
  });

  it('with the lowest cost of several is taken', () => {
    const half = always('half', { near: 0.5, far: 0.5 });
    const { changes } = run([half, far], 200, () => 0.2);
    expect(changes.map(({ text }) => text.split(':')[0])).toEqual(['promoted far']);
  });

  it('that fails or plans no numbers ends nothing, and a live one is demoted', () => {
    let broken = false;
    const fails: Contender = {
      name: 'fails',
      plan() {
        if (broken) throw new Error('broken');
        return planOf({ near: 0, far: 1 });
      },
    };
    const mad = always('mad', { near: Number.NaN, far: 1 });
    const { changes, policies } = run([mad, fails], 200, (slot) => {
      broken = slot > 150;
      return 0.2;
    });
    expect(changes.map(({ text }) => text.split(';')[0])).toEqual([
      expect.stringContaining('promoted fails'),
      'demoted fails: it made no plan',
    ]);
    expect(policies[150]).toBe('default');
  });

  it('is not compared in slots without requests, and the only policy has no name', () => {
    const contest = new ChampionChallenger({
      ...WEIGHTS,
      champion: always('default', { near: 1 }),
      challengers: [far],
    });
    for (let slot = 0; slot < 200; slot++)
      expect(contest.plan([view({ near: { tripS: 1 }, far: { tripS: 0.1 } }, 0)], []).changes).toEqual([]);
    const alone = new ChampionChallenger({ ...WEIGHTS, champion: always('default', { near: 1 }), challengers: [] });
    expect(alone.plan([view({ near: { tripS: 1 } })], []).plan.policy).toBeUndefined();
  });

  it('of less smoothness is promoted where prices of distance swing every hour', () => {
    const contender = (name: string, smoothness: number): Contender => {
      const planner = new LivePlanner({ ...WEIGHTS, smoothness });
      return { name, plan: (views, facts) => planner.plan(views, facts) };
    };
    const swing = (slot: number) => (Math.floor(slot / 20) % 2 === 0 ? 0.2 : 1.8);
    const { changes } = run([contender('smoothness=0.1', 0.1)], 800, swing, contender('default', 20));
    expect(changes.map(({ text }) => text.split(':')[0])).toEqual(['promoted smoothness=0.1']);
  });
});
