import { describe, expect, it } from 'vitest';
import { type DeploymentPlan, gpusOfPlan, samePlan } from '../../../research/orchestration/deployment-plan.ts';
import type { Orchestrator, View } from '../../../research/orchestration/orchestrator.ts';
import { dynamo, prefillReplicas } from '../../../research/orchestration/orchestrators/dynamo.ts';
import { reload } from '../../../research/orchestration/orchestrators/reload.ts';
import { llumnix, unchanged } from '../../../research/orchestration/orchestrators/unchanged.ts';
import { raceTimeline } from '../../../research/orchestration/timeline.ts';
import { calibrated } from '../../../scheduler/forecast/conformal-intervals.ts';
import { DEFAULT_LIMITS } from '../../../scheduler/simulator/engine-limits.ts';
import { EMPTY, oursOf, requestsOf, SMALL, timeline } from './support.ts';

const PAIRS: DeploymentPlan = [{ shape: { tp: 2, pp: 1 }, replicas: 4 }];
const WIDE: DeploymentPlan = [{ shape: { tp: 8, pp: 1 }, replicas: 1 }];
const PIPE: DeploymentPlan = [{ shape: { tp: 2, pp: 4 }, replicas: 1 }];
const MIXED: DeploymentPlan = [
  { shape: { tp: 4, pp: 1 }, replicas: 1 },
  { shape: { tp: 2, pp: 1 }, replicas: 2 },
];

/** From one plan to another in minute 2. */
const changes = (
  from: DeploymentPlan,
  to: DeploymentPlan,
  running: 'migrate' | 'recompute' = 'migrate',
): Orchestrator => ({
  name: 'changes',
  decide: ({ slot }) => ({
    plan: slot < 2 ? from : to,
    dispatch: { kind: 'least-loaded' },
    darkS: 8,
    running,
    note: '',
  }),
});

describe('a deployment that changes while requests run', () => {
  const steady = requestsOf(5, () => [6, 6]);

  it('loses no request, whether what runs moves or is computed again', () => {
    for (const running of ['migrate', 'recompute'] as const) {
      const result = timeline({ ...steady, orchestrator: changes(PAIRS, MIXED, running) });
      expect(result).toMatchObject({ unanswered: 0, switches: 1, failedSwitches: 0 });
      expect(result.migrated).toBeGreaterThan(0);
    }
  });

  it('lets answers that end before their keys and values could have moved end where they are', () => {
    const over = (kvBytesPerS: number) => timeline({ ...steady, orchestrator: changes(PAIRS, WIDE), kvBytesPerS });
    expect(over(25e9).migrated).toBeGreaterThan(0);
    expect(over(1e6)).toMatchObject({ migrated: 0, unanswered: 0, switches: 1 });
  });

  it('has every first token before the end and after the arrival', () => {
    const { ttft, latency, tbt } = timeline({ ...steady, orchestrator: changes(PAIRS, WIDE) });
    expect(ttft.max).toBeLessThanOrEqual(latency.max);
    expect(tbt.mean).toBeGreaterThan(0);
  });

  it('waits when no replica is ready, and goes on then', () => {
    const { latency, unanswered } = timeline({ ...steady, orchestrator: changes(PAIRS, WIDE) });
    const still = timeline({ ...steady, orchestrator: unchanged('still', PAIRS, { kind: 'least-loaded' }) });
    expect(unanswered).toBe(0);
    expect(latency.max).toBeGreaterThan(still.latency.p50 + 8);
  });

  it('keeps the order of what waits: no request is overtaken by those that came after it', () => {
    const busy = requestsOf(3, (minute) => (minute < 1 ? [80, 1] : [2, 1]));
    const { arrival } = busy.requests;
    // One replica after the switch: with several, an arrival can find a shorter queue than those before it.
    for (const to of [WIDE, PIPE]) {
      const turn: Orchestrator = {
        ...changes(PAIRS, to),
        decide: ({ slot }) => changes(PAIRS, to).decide({ slot: slot + 1 } as View),
      };
      const { byRequest, latency, unanswered } = timeline({ ...busy, orchestrator: turn });
      expect(unanswered).toBe(0);
      expect(latency.max).toBeGreaterThan(60);
      for (const kind of [0, 1]) {
        const ended = Array.from(arrival, (at, i) => ({ at, end: at + (byRequest[i] ?? 0), kind: busy.judged[i] }))
          .filter((one) => one.kind === kind)
          .sort((a, b) => a.end - b.end);
        let [newest, overtaken] = [0, 0];
        for (const { at } of ended) {
          overtaken = Math.max(overtaken, newest - at);
          newest = Math.max(newest, at);
        }
        // Seconds. The replicas before the switch were not equally far.
        expect(overtaken).toBeLessThan(5);
      }
    }
  });

  it('keeps the old deployment when the switch fails half-way, and loses nothing', () => {
    const orchestrator = changes(PAIRS, MIXED);
    const failing = timeline({ ...steady, orchestrator, faults: { failedSwitches: [0, 1, 2] } });
    expect(failing).toMatchObject({ unanswered: 0, switches: 0, failedSwitches: 3 });
    expect(failing.slots.every(({ plan }) => samePlan(plan, PAIRS))).toBe(true);
    const once = timeline({ ...steady, orchestrator, faults: { failedSwitches: [0] } });
    expect(once).toMatchObject({ unanswered: 0, switches: 1, failedSwitches: 1 });
  });

  it('gives the same with the same input', () => {
    const of = () => timeline({ ...steady, orchestrator: changes(PAIRS, MIXED) }).latencies;
    expect(of()).toEqual(of());
  });

  it('is given up as soon as its P99 is sure to be above a limit, and else runs as without one', () => {
    const of = { table: SMALL, limits: DEFAULT_LIMITS, slotS: 60, kvBytesPerS: 25e9, ...steady };
    const orchestrator = () => unchanged('still', PAIRS, { kind: 'least-loaded' });
    const whole = timeline({ ...steady, orchestrator: orchestrator() });
    const { p99, p50 } = whole.latency;
    expect(raceTimeline({ ...of, orchestrator: orchestrator() }, p99)).toEqual(whole);
    expect(raceTimeline({ ...of, orchestrator: orchestrator() }, p50)).toBeUndefined();
  });

  it('tells what is under way: every request that came and has not ended', () => {
    const seen: number[] = [];
    const orchestrator: Orchestrator = {
      name: 'looks',
      decide: ({ slot, underWay }) => {
        const all = underWay();
        seen.push(all.length);
        expect(all.every(({ ageS, tokens, answered }) => ageS >= 0 && tokens > answered && answered >= 0)).toBe(true);
        return changes(PAIRS, WIDE).decide({ slot } as View);
      },
    };
    const busy = requestsOf(4, () => [20, 12]);
    const { latencies } = timeline({ ...busy, orchestrator });
    const ends = (slot: number) => busy.requests.arrival.filter((at) => at < slot * 60).length;
    expect(seen[0]).toBe(0);
    expect(seen[3]).toBeGreaterThan(0);
    expect(seen[3]).toBeLessThan(ends(3));
    expect(latencies.length).toBe(busy.requests.count);
  });

  it('is refused when it does not fit', () => {
    const tooMuch: DeploymentPlan = [{ shape: { tp: 4, pp: 1 }, replicas: 3 }];
    expect(() => timeline({ ...steady, orchestrator: changes(PAIRS, tooMuch) })).toThrow(
      'the plan has 12 GPUs, there are 8',
    );
  });
});

describe('ways to serve a changing workload', () => {
  const steady = requestsOf(4, () => [5, 5]);

  it('all answer every request', () => {
    const all = [
      unchanged('static', PAIRS, { kind: 'round-robin' }),
      llumnix(PAIRS),
      dynamo(SMALL, PAIRS, [5, 5]),
      reload(SMALL, 2, 0.1),
      oursOf(),
    ];
    for (const orchestrator of all) expect(timeline({ ...steady, orchestrator }).unanswered, orchestrator.name).toBe(0);
  });

  it('split replicas by the work of prompts and of responses, as the planner of Dynamo does', () => {
    const [{ shape } = { shape: { tp: 1, pp: 1 } }] = PAIRS;
    const of = (demand: number[]) => prefillReplicas(SMALL, shape, demand, 8);
    // The first kind has long prompts or short responses, compared with the second.
    const work = SMALL.kinds.map(({ moments }) => moments.input.mean / moments.output.mean);
    const [heavy, light] =
      (work[0] ?? 0) > (work[1] ?? 0)
        ? [
            [20, 0],
            [0, 20],
          ]
        : [
            [0, 20],
            [20, 0],
          ];
    expect(of(heavy ?? [])).toBeGreaterThan(of(light ?? []));
    for (const demand of [heavy, light, [0, 0]]) {
      expect(of(demand ?? [])).toBeGreaterThanOrEqual(1);
      expect(of(demand ?? [])).toBeLessThanOrEqual(7);
    }
  });

  it('plan anew for the GPUs that are left when some are lost, and lose no request', () => {
    const faults = { lost: [{ atS: 60, gpus: [0, 1, 2] }] };
    const result = timeline({ ...steady, orchestrator: oursOf(), faults });
    expect(result.unanswered).toBe(0);
    expect(gpusOfPlan(result.slots[0]?.plan ?? [])).toBe(8);
    for (const { plan } of result.slots.slice(1)) expect(gpusOfPlan(plan)).toBeLessThanOrEqual(5);
  });

  it('change for a mix that stays changed, and stop changing then', () => {
    const flips = requestsOf(9, (minute) => (minute < 3 ? [24, 1] : [1, 12]));
    const { slots, unanswered } = timeline({ ...flips, orchestrator: oursOf({ initial: [24, 1] }) });
    expect(unanswered).toBe(0);
    expect(slots.slice(7).every(({ switched }) => !switched)).toBe(true);
  });

  it('survive a kind that vanishes, minutes of nothing and a ten-fold burst', () => {
    const odd = requestsOf(8, (minute) => [
      minute < 2 ? 5 : 0,
      minute === 4 || minute === 5 ? 0 : minute === 6 ? 40 : 4,
    ]);
    const result = timeline({ ...odd, orchestrator: oursOf() });
    expect(result.unanswered).toBe(0);
    expect(result.slots.every(({ plan }) => gpusOfPlan(plan) <= 8)).toBe(true);
  });

  it('go on with the last value when the forecaster gives NaN', () => {
    const broken = calibrated({
      name: 'broken',
      fit: () => (values, h) => values.map(() => new Array(h).fill(Number.NaN)),
    });
    const forecaster = broken.fit(EMPTY, { horizon: 3, level: 0.8, seed: 1 });
    expect(timeline({ ...steady, orchestrator: oursOf({ forecaster }) }).unanswered).toBe(0);
  });

  it("keep an operator's pin whatever comes", () => {
    const flips = requestsOf(5, (minute) => (minute < 2 ? [24, 1] : [1, 12]));
    const { slots, switches } = timeline({ ...flips, orchestrator: oursOf({ pin: MIXED }) });
    expect(switches).toBe(0);
    expect(slots.every(({ plan }) => samePlan(plan, MIXED))).toBe(true);
  });
});
