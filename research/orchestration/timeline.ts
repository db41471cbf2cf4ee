import type { RateTable } from '../../scheduler/assignment/rate-table.ts';
import type { History } from '../../scheduler/forecast/types.ts';
import type { SimulatedEngineLimits } from '../../scheduler/simulator/engine-limits.ts';
import { type Distribution, distribution } from '../../scheduler/simulator/latency-distribution.ts';
import type { Requests } from '../../scheduler/simulator/request-arrivals.ts';
import { countByKind } from '../workload/counts.ts';
import type { DeploymentPlan } from './deployment-plan.ts';
import { Fleet } from './fleet.ts';
import type { Orchestrator } from './orchestrator.ts';
import { place } from './placement.ts';

interface TimelineFaults {
  /** GPUs that fail at a given second. */
  lost?: readonly { atS: number; gpus: readonly number[] }[];
  /** Switches that fail halfway, counted from 0: the previous replicas continue to serve. */
  failedSwitches?: readonly number[];
}

export interface TimelineSetup {
  table: RateTable;
  limits: SimulatedEngineLimits;
  requests: Requests;
  /** The kind of each request as judged on arrival. */
  judged: Int32Array;
  /** The true kind of each request, which policies learn from records of ended requests; absent: as judged. */
  kinds?: Int32Array;
  slotS: number;
  /** Slots before the first request, of the same kinds, for forecasts. */
  before?: History;
  orchestrator: Orchestrator;
  faults?: TimelineFaults;
  /** Bytes/s between replicas, for keys and values. */
  kvBytesPerS: number;
}

interface SlotRow {
  slot: number;
  plan: DeploymentPlan;
  note: string | undefined;
  switched: boolean;
  /** Requests that arrived, by kind. */
  demand: number[];
  p99S: number;
}

export interface TimelineResult {
  name: string;
  latency: Distribution;
  /** The percentiles from 95 to 99, seconds. */
  tail: number[];
  ttft: Distribution;
  /** Seconds between tokens, mean of each response. */
  tbt: Distribution;
  requestsPerS: number;
  requests: number;
  /** Requests without an end: must be 0, except for those that no replica could hold. */
  unanswered: number;
  switches: number;
  failedSwitches: number;
  migrated: number;
  slots: SlotRow[];
  latencies: Float64Array;
  /** Seconds of each request's response; NaN: unanswered. */
  byRequest: Float64Array;
}

/** Runs all requests through a changing deployment. The same input gives the same output. */
export function runTimeline(setup: TimelineSetup): TimelineResult {
  const result = raceTimeline(setup, Number.POSITIVE_INFINITY);
  if (result === undefined) throw new Error('a run without a limit has given up');
  return result;
}

/** The same, until its P99 is certain to exceed `p99S`: then it returns undefined. */
export function raceTimeline(setup: TimelineSetup, p99S: number): TimelineResult | undefined {
  const { requests, slotS, table } = setup;
  // Requests that never end have no latency, which lowers the number of requests that may be late.
  const lateMax = requests.count - Math.ceil(0.99 * requests.count);
  let late = 0;
  const ended = (_request: number, latencyS: number) => {
    if (latencyS > p99S) late++;
  };
  const fleet = new Fleet({ ...setup, ended });
  const names = table.kinds.map(({ name }) => name);
  const endS = requests.arrival[requests.count - 1] ?? 0;
  const counted = countByKind(requests, setup.kinds ?? setup.judged, names, { slotS, endS: endS + slotS });
  const slots = Math.floor(endS / slotS) + 1;
  const rows: SlotRow[] = [];
  const lost = new Set<number>();
  let plan: DeploymentPlan = [];
  let [at, switches, failed, attempts] = [0, 0, 0, 0];
  for (let slot = 0; slot < slots; slot++) {
    const nowS = slot * slotS;
    fleet.run(nowS);
    let forced = false;
    for (const fault of setup.faults?.lost ?? []) {
      if (fault.atS > nowS || fault.gpus.every((gpu) => lost.has(gpu))) continue;
      for (const gpu of fault.gpus) lost.add(gpu);
      fleet.lose(lost, nowS);
      forced = true;
    }
    const view = {
      slot,
      nowS,
      history: historyAt(setup.before, counted, slot),
      running: fleet.placed,
      plan,
      gpus: table.site.gpus - lost.size,
      underWay: () => fleet.underWay(nowS),
    };
    const decision = setup.orchestrator.decide(view);
    let switched = false;
    if (decision !== undefined) {
      const placement = place(decision.plan, fleet.placed, table.site, lost);
      switched = slot > 0 && (placement.kept.size < placement.replicas.length || forced);
      const fails = switched && (setup.faults?.failedSwitches ?? []).includes(attempts);
      if (switched) attempts++;
      if (fails) {
        failed++;
        fleet.pause(placement, nowS, decision.darkS);
      } else {
        if (switched) switches++;
        plan = decision.plan;
        fleet.apply(decision, placement, nowS, slot === 0 ? 0 : decision.darkS);
      }
    }
    const until = nowS + slotS;
    for (; at < requests.count && (requests.arrival[at] ?? 0) < until && late <= lateMax; at++) fleet.arrive(at);
    if (late > lateMax) return undefined;
    const demand = counted.counts.map((series) => series[slot] ?? 0);
    rows.push({ slot, plan, note: decision?.note, switched, demand, p99S: 0 });
  }
  fleet.run(Number.POSITIVE_INFINITY);
  return summary(setup, fleet, rows, { switches, failed });
}

/** Known history at the start of a slot. */
function historyAt(before: History | undefined, counted: History, slot: number): History {
  const counts = counted.counts.map((series, kind) => [...(before?.counts[kind] ?? []), ...series.slice(0, slot)]);
  return { names: counted.names, slotS: counted.slotS, counts };
}

function summary(
  setup: TimelineSetup,
  fleet: Fleet,
  slots: SlotRow[],
  { switches, failed }: { switches: number; failed: number },
): TimelineResult {
  const { requests } = setup;
  const column = () => new Float64Array(requests.count);
  const [latency, ttft, tbt] = [column(), column(), column()];
  const byRequest = column().fill(Number.NaN);
  const bySlot: number[][] = slots.map(() => []);
  let [answered, several, last] = [0, 0, 0];
  for (let i = 0; i < requests.count; i++) {
    const end = fleet.end[i] ?? Number.NaN;
    if (Number.isNaN(end)) continue;
    const [arrived, first, output] = [requests.arrival[i] ?? 0, fleet.first[i] ?? end, requests.output[i] ?? 1];
    latency[answered] = end - arrived;
    byRequest[i] = end - arrived;
    ttft[answered++] = first - arrived;
    if (output > 1) tbt[several++] = (end - first) / (output - 1);
    bySlot[Math.floor(arrived / setup.slotS)]?.push(end - arrived);
    last = Math.max(last, end);
  }
  for (const [slot, row] of slots.entries()) row.p99S = distribution(Float64Array.from(bySlot[slot] ?? [])).p99;
  const sorted = latency.subarray(0, answered).sort();
  const at = (q: number) => sorted[Math.min(sorted.length - 1, Math.ceil(q * sorted.length) - 1)] ?? 0;
  return {
    name: setup.orchestrator.name,
    latency: distribution(sorted),
    tail: [0.95, 0.96, 0.97, 0.98, 0.99].map(at),
    ttft: distribution(ttft.subarray(0, answered)),
    tbt: distribution(tbt.subarray(0, several)),
    requestsPerS: answered / Math.max(last - (requests.arrival[0] ?? 0), 1e-9),
    requests: requests.count,
    unanswered: requests.count - answered,
    switches,
    failedSwitches: failed,
    migrated: fleet.migrated,
    slots,
    latencies: sorted,
    byRequest,
  };
}
