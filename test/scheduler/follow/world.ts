/** A gateway, its records, agents and a factory in memory, in virtual time: a follower's inputs and outputs. */
import { loadCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import { SchedulerError } from '../../../scheduler/errors.ts';
import { DemandFollower, type FollowOptions } from '../../../scheduler/follow/follower.ts';
import type { CountedLine, SlotRecord } from '../../../scheduler/follow/slot-records.ts';
import { DeploymentDescriptions } from '../../../scheduler/live/agent-pools.ts';
import type { PlanningContext } from '../../../scheduler/live/observation.ts';
import { type PlanFilePlacement, planFor } from '../../../scheduler/live/plan-file.ts';
import type { PlannerGateway } from '../../../scheduler/live/planner-gateway.ts';
import { DEFAULT_LIMITS } from '../../../scheduler/simulator/engine-limits.ts';
import { StandInNetwork } from '../support/stand-in-network.ts';

export const MODEL = 'meta-llama/Llama-2-13b-hf';
export const SLOT_S = 60;
const SLOT_MS = SLOT_S * 1e3;
export const KINDS = [
  { name: 'answers', input: 50, output: 1_000, share: 0.5 },
  { name: 'prompts', input: 4_000, output: 10, share: 0.5 },
];
/** Ten prompts or one answer a second, and the reverse. */
const RATES = [
  { model: MODEL, tp: 2, pp: 1, prompt_tokens_per_s: 44_000, answer_tokens_per_s: 1_000 },
  { model: MODEL, tp: 1, pp: 2, prompt_tokens_per_s: 4_400, answer_tokens_per_s: 11_000 },
];

export class World {
  now = Date.parse('2026-01-01T10:00:00Z');
  readonly network = new StandInNetwork(Array.from({ length: 4 }, () => 'A100'));
  /** `[answers, prompts]` of the slot that begins at a time; undefined: the gateway has no data. */
  arrivals: (slot: number) => readonly number[] | undefined = () => [60, 600];
  unserved = 0;
  /** Prompts and answers with their recorded lengths. */
  lengths = KINDS.map(({ input, output }) => ({ input, output, requests: 500 }));
  /** Requests by kind, and by the kind that the gateway judged; empty: the gateway does not send them. */
  confusion: number[][] = [];
  down = false;
  /** Windows that take the gateway longer than a planner waits. */
  slowAboveS = Number.POSITIVE_INFINITY;
  published: { kinds: unknown[]; weights: { session?: string; kind?: string; weight: number }[] } = {
    kinds: [...KINDS],
    weights: [],
  };
  readonly lines: string[] = [];
  readonly records: SlotRecord[] = [];
  /** The last plan that was handed over. */
  plan: PlanFilePlacement[] = [];
  readonly follower: DemandFollower;
  readonly #catalogue = loadCatalogue();

  constructor(options: Partial<FollowOptions> = {}, before: readonly CountedLine[] = []) {
    const gateway: PlannerGateway = {
      url: 'http://gateway',
      get: async (path) => {
        if (this.down) throw new SchedulerError('gateway', 'does not answer');
        return this.network.answer(path) ?? this.#workload(path);
      },
      put: async (_path, body) => void Object.assign(this.published, body),
    };
    const context: PlanningContext = {
      gateway,
      catalogue: this.#catalogue,
      planner: () => Promise.reject(new Error('following plans by itself')),
      options: {
        objective: 'throughput',
        reclaim: true,
        limits: DEFAULT_LIMITS,
        calibration: this.#catalogue.calibration,
        measured: [],
        timeLimitS: 5,
        gap: 0,
        seed: 1,
      } as PlanningContext['options'],
      descriptions: new DeploymentDescriptions(gateway),
      now: () => this.now,
      log: (line) => void this.lines.push(line),
    };
    const defaults = { slotS: SLOT_S, horizon: 5, season: 1_440, margin: 0.1, confirm: 2, switchS: 60, wave: 4 };
    this.follower = new DemandFollower(
      context,
      { ...defaults, pins: [], measured: RATES, publish: true, ...options },
      {
        out: (line) => void this.lines.push(line),
        log: (line) => void this.lines.push(line),
        handOver: (observation, wanted) => {
          this.plan = planFor(observation, wanted);
        },
        record: async (records) => void this.records.push(...records),
      },
      before,
    );
  }

  /** Runs `slots` slots, with a look at the start of each. */
  async run(slots: number): Promise<void> {
    for (let n = 0; n < slots; n++) {
      this.now = (Math.floor(this.now / SLOT_MS) + 1) * SLOT_MS + 1;
      await this.follower.look();
      this.network.follow(this.plan);
    }
  }

  /** Running replicas, `[TP 2, TP 1 × PP 2]`. */
  get running(): [number, number] {
    const of = (tp: number) => this.network.deployed.filter((one) => one.tp === tp).length;
    return [of(2), of(1)];
  }

  get last(): SlotRecord | undefined {
    return this.records.at(-1);
  }

  get text(): string {
    return this.lines.join('\n');
  }

  #workload(path: string): object {
    const windowS = Number(/window=(\d+)s/.exec(path)?.[1]);
    if (windowS > this.slowAboveS)
      throw new SchedulerError('gateway', 'does not answer', { cause: new DOMException('late', 'TimeoutError') });
    const end = Math.floor(this.now / SLOT_MS);
    const first = Math.max(end - Math.floor(windowS / SLOT_S), end - 120);
    const slots = Array.from({ length: end - first }, (_, i) => first + i).flatMap((slot) => {
      const requests = this.arrivals(slot);
      if (requests === undefined) return [];
      return [
        { at: new Date(slot * SLOT_MS).toISOString(), requests, unserved: this.unserved, p50_ms: 900, p99_ms: 2_000 },
      ];
    });
    const latency = KINDS.map(() => ({ mean: 900, p95: 2_000 }));
    const { confusion, lengths } = this;
    const misjudged = { requests: 100, wrong: 4, ...(confusion.length > 0 && { confusion }) };
    const { kinds } = this.published;
    return { slot_ms: SLOT_MS, data: [{ model: MODEL, kinds, slots, latency_ms: latency, misjudged, lengths }] };
  }
}
