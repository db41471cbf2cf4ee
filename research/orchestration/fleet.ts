import type { RateTable } from '../../scheduler/assignment/rate-table.ts';
import type { Shape } from '../../scheduler/assignment/types.ts';
import { choose, type Dispatch, least } from '../../scheduler/follow/dispatch.ts';
import { kvBytesPerToken } from '../../scheduler/roofline/model-deployment.ts';
import type { SimulatedEngineLimits } from '../../scheduler/simulator/engine-limits.ts';
import { Heap } from '../../scheduler/simulator/heap.ts';
import type { Requests } from '../../scheduler/simulator/request-arrivals.ts';
import { type HeldRequest, SimulatedEngine } from '../../scheduler/simulator/simulated-engine.ts';
import { gpusOfShape, sameShape } from './deployment-plan.ts';
import type { Member, MemberRole } from './member.ts';
import type { OrchestrationDecision, RunningRequest } from './orchestrator.ts';
import type { PlacedReplica, ReplicaPlacement } from './placement.ts';
import { kvMoveSeconds } from './switch-cost.ts';

export interface FleetSetup {
  table: RateTable;
  limits: SimulatedEngineLimits;
  requests: Requests;
  /** The kind of each request as judged on arrival. */
  judged: Int32Array;
  /** Bytes/s of one link between replicas; each GPU has one. */
  kvBytesPerS: number;
  /** Called once per completed request. */
  ended?: (request: number, latencyS: number) => void;
}

/** A replica that ends, and serves its running requests until their keys and values have moved. */
interface Leaving extends Pick<Member, 'placed' | 'engine'> {
  atS: number;
}

/** A request that enters a replica at a later time: it moves there, or waits until a replica is ready. */
interface Later {
  request: number;
  tokens: number;
  remaining: number;
  stored: boolean;
  target?: Member;
}

/**
 * Seconds to move a sequence in addition to its bytes: the pause for a last small chunk (Llumnix, OSDI'24 reports 20 to
 * 30 ms).
 */
const MOVE_S = 0.03;
/** Smaller differences in load are not balanced, because moves cost time. */
const REBALANCE_MIN = 4;

/** The replicas of a run with a changing deployment, and the replica of each request. */
export class Fleet {
  /** Seconds of the first token and of the end of each request; NaN: not yet. */
  readonly first: Float64Array;
  readonly end: Float64Array;
  migrated = 0;
  #members: Member[] = [];
  #leaving: Leaving[] = [];
  /**
   * Requests that wait for the same moment continue in order of arrival: a switch must not send the oldest to the end
   * of the queue.
   */
  readonly #later = new Heap<Later>({ byEpoch: true });
  readonly #prefilling: Uint8Array;
  #dispatch: Dispatch = { kind: 'least-loaded' };
  #rebalanceS: number | undefined;
  #rebalancedAt = 0;
  #turn = 0;

  readonly #table: RateTable;
  readonly #limits: SimulatedEngineLimits;
  readonly #requests: Requests;
  readonly #judged: Int32Array;
  readonly #kvBytesPerS: number;

  readonly #ended: (request: number, latencyS: number) => void;

  constructor({ table, limits, requests, judged, kvBytesPerS, ended = () => {} }: FleetSetup) {
    this.#table = table;
    this.#limits = limits;
    this.#requests = requests;
    this.#judged = judged;
    this.#kvBytesPerS = kvBytesPerS;
    this.#ended = ended;
    this.first = new Float64Array(requests.count).fill(Number.NaN);
    this.end = new Float64Array(requests.count).fill(Number.NaN);
    this.#prefilling = new Uint8Array(requests.count);
  }

  get placed(): readonly PlacedReplica[] {
    return this.#members.map(({ placed }) => placed);
  }

  /** Requests that have arrived and not ended. */
  underWay(now: number): RunningRequest[] {
    const engines = [...this.#members, ...this.#leaving].map(({ engine }) => engine);
    const held = engines.flatMap((engine) => engine.held());
    const later = this.#later.items().map((one) => ({ ...one, computed: one.stored }));
    return [...held, ...later].map(({ request, tokens, remaining, computed }) => ({
      kind: this.#judged[request] ?? 0,
      ageS: now - (this.#requests.arrival[request] ?? now),
      tokens,
      answered: (this.#requests.output[request] ?? remaining) - remaining,
      computed,
    }));
  }

  /** Simulates everything up to `until`, in order of time. */
  run(until: number): void {
    for (;;) {
      for (const { role, engine } of this.#members) if (role === 'prefill') engine.run(until);
      const next = this.#later.peek();
      const first = least(this.#leaving, ({ atS }) => atS);
      const at = Math.min(next?.key ?? Number.POSITIVE_INFINITY, first?.atS ?? Number.POSITIVE_INFINITY);
      if (at > until || at === Number.POSITIVE_INFINITY) break;
      this.#runAll(at);
      if (first !== undefined && first.atS <= at) {
        this.#leaving = this.#leaving.filter((one) => one !== first);
        this.#moveAway(first.engine, at, true);
      } else if (next !== undefined) {
        this.#later.pop();
        this.#enter(next.item, at);
      }
    }
    this.#runAll(until);
  }

  #runAll(until: number): void {
    for (const { engine } of this.#members) if (engine.clock < until) engine.run(until);
    for (const { engine } of this.#leaving) if (engine.clock < until) engine.run(until);
  }

  /** Adds a request that began before this run. */
  resume(request: number, { tokens, computed }: RunningRequest, remaining: number): void {
    this.#enter({ request, tokens, remaining, stored: computed }, 0);
  }

  arrive(request: number): void {
    const now = this.#requests.arrival[request] ?? 0;
    this.run(now);
    if (this.#rebalanceS !== undefined && now - this.#rebalancedAt >= this.#rebalanceS) this.#rebalance(now);
    const [tokens, remaining] = [this.#requests.input[request] ?? 1, this.#requests.output[request] ?? 1];
    this.#enter({ request, tokens, remaining, stored: false }, now);
  }

  /**
   * Changes to another deployment. Replicas that end give up their waiting requests, and the running ones once their
   * keys and values have moved. New replicas are ready `darkS` after that.
   */
  apply(decision: OrchestrationDecision, placement: ReplicaPlacement, now: number, darkS: number): void {
    this.#dispatch = decision.dispatch;
    this.#rebalanceS = decision.rebalanceS;
    const leaving = this.#members.filter(({ placed }) => !placement.kept.has(placed.id));
    const migrates = decision.running === 'migrate';
    const movedS = now + Math.max(0, ...leaving.map((member) => (migrates ? this.#kvS(member) : 0)));
    const known = new Map(this.#members.map((member) => [member.placed.id, member]));
    const left = decision.plan.map(({ replicas }) => replicas);
    this.#members = placement.replicas.map((placed, i) => {
      const group = decision.plan.findIndex(({ shape }, g) => sameShape(shape, placed.shape) && (left[g] ?? 0) > 0);
      left[group] = (left[group] ?? 0) - 1;
      const role = decision.roles?.[i] ?? 'both';
      const member = known.get(placed.id);
      if (member !== undefined) return Object.assign(member, { group, role });
      return this.#member(placed, group, role, movedS + darkS);
    });
    for (const { placed, engine } of leaving) {
      // Waiting requests have nothing to move.
      if (migrates) for (const held of engine.takeRequests(engine.waiting)) this.#move(held, now, true);
      else this.#moveAway(engine, now, false);
      if (migrates) this.#leaving.push({ placed, engine, atS: movedS });
    }
  }

  #kvS({ placed: { shape }, engine }: Member): number {
    const { sequences, tokenS } = engine.decoding;
    const bytesPerToken = kvBytesPerToken(this.#table.step(shape).deployment);
    return kvMoveSeconds(sequences, { tokenS, bytesPerToken, bytesPerS: this.#kvBytesPerS * gpusOfShape(shape) });
  }

  /**
   * A switch that failed halfway: replicas that should have ended are unavailable for `darkS` and then continue to
   * serve.
   */
  pause(placement: ReplicaPlacement, now: number, darkS: number): void {
    const paused = this.#members.filter(({ placed }) => !placement.kept.has(placed.id));
    for (const member of paused) member.readyS = now + darkS;
    for (const { engine } of paused) this.#moveAway(engine, now, false);
  }

  /** GPUs fail, and their replicas lose everything that they had computed. */
  lose(gpus: ReadonlySet<number>, now: number): void {
    const isGone = ({ placed }: Leaving | Member) => placed.gpus.some((gpu) => gpus.has(gpu));
    const gone = [...this.#members.filter(isGone), ...this.#leaving.filter(isGone)];
    this.#members = this.#members.filter((member) => !isGone(member));
    this.#leaving = this.#leaving.filter((one) => !isGone(one));
    for (const { engine } of gone) this.#moveAway(engine, now, false);
  }

  #member(placed: PlacedReplica, group: number, role: MemberRole, readyS: number): Member {
    const { rates } = this.#table.of(placed.shape);
    const costS = rates.map((rate) => (rate > 0 ? 1 / rate : Number.POSITIVE_INFINITY));
    const finished = (request: number, first: number | undefined, end: number) =>
      this.#finished(member, request, first, end);
    const engine = new SimulatedEngine(this.#table.step(placed.shape), this.#limits, finished);
    const member: Member = { placed, engine, role, readyS, group, workS: 0, costS };
    return member;
  }

  #finished(member: Member, request: number, first: number | undefined, end: number): void {
    member.workS = Math.max(0, member.workS - (member.costS[this.#judged[request] ?? 0] ?? 0));
    if (first === undefined) return;
    if (Number.isNaN(this.first[request] ?? Number.NaN)) this.first[request] = first;
    const output = this.#requests.output[request] ?? 1;
    if (this.#prefilling[request] === 1 && output > 1) {
      this.#prefilling[request] = 0;
      const tokens = this.#requests.input[request] ?? 1;
      this.#after(end + this.#moveS(member.placed.shape, tokens), {
        request,
        tokens,
        remaining: output - 1,
        stored: true,
      });
      return;
    }
    this.end[request] = end;
    this.#ended(request, end - (this.#requests.arrival[request] ?? 0));
  }

  #moveS(shape: Shape, tokens: number): number {
    return MOVE_S + this.#table.step(shape).transferSeconds(tokens, this.#kvBytesPerS);
  }

  #after(at: number, item: Later): void {
    this.#later.push(at, item.request, item);
  }

  #moveAway(engine: SimulatedEngine, now: number, migrate: boolean): void {
    for (const held of engine.takeRequests()) this.#move(held, now, migrate);
  }

  #move(held: HeldRequest, now: number, migrate: boolean, target?: Member): void {
    if (held.firstToken !== undefined && Number.isNaN(this.first[held.request] ?? Number.NaN))
      this.first[held.request] = held.firstToken;
    const stored = migrate && held.computed;
    if (held.computed) this.migrated++;
    const shape = this.#members[0]?.placed.shape ?? { tp: 1, pp: 1 };
    const at = stored ? now + this.#moveS(shape, held.tokens) : now;
    // The last token of a response has no keys and values yet: a replica that recomputes the others also computes this
    // one.
    const tokens = held.computed && !stored ? held.tokens + 1 : held.tokens;
    this.#after(at, {
      request: held.request,
      tokens,
      remaining: held.remaining,
      stored,
      ...(target === undefined ? {} : { target }),
    });
  }

  #enter(item: Later, now: number): void {
    const kind = this.#judged[item.request] ?? 0;
    // A response that began elsewhere continues on a replica that decodes.
    const begun = item.tokens > (this.#requests.input[item.request] ?? 0);
    const ready: Member[] = [];
    let readyS = Number.POSITIVE_INFINITY;
    for (const member of this.#members) {
      if (item.stored ? member.role === 'prefill' : member.role === 'decode' && !begun) continue;
      if (member.readyS <= now) ready.push(member);
      else readyS = Math.min(readyS, member.readyS);
    }
    // No replica serves now: the request waits for the first one that will.
    if (ready.length === 0) return this.#after(readyS, item);
    const chosen =
      item.target !== undefined && ready.includes(item.target)
        ? item.target
        : choose(ready, this.#dispatch, kind, this.#turn++);
    if (chosen === undefined) return;
    const prefillOnly = chosen.role === 'prefill';
    if (prefillOnly) this.#prefilling[item.request] = 1;
    chosen.workS += chosen.costS[kind] ?? 0;
    chosen.engine.push(item.request, now, item.tokens, prefillOnly ? 1 : item.remaining, item.stored);
  }

  /**
   * Moves requests from the fullest to the emptiest replica of each role, newest first, until both hold the same
   * number.
   */
  #rebalance(now: number): void {
    this.#rebalancedAt = now;
    const ready = this.#members.filter(({ readyS }) => readyS <= now);
    for (const role of ['both', 'decode'] as const) {
      const own = ready.filter((member) => member.role === role);
      const full = least(own, ({ engine }) => -engine.load);
      const empty = least(own, ({ engine }) => engine.load);
      if (full === undefined || empty === undefined) continue;
      const apart = full.engine.load - empty.engine.load;
      if (apart < REBALANCE_MIN) continue;
      for (const held of full.engine.takeRequests(Math.floor(apart / 2))) {
        full.workS = Math.max(0, full.workS - (full.costS[this.#judged[held.request] ?? 0] ?? 0));
        this.#move(held, now, true, empty);
      }
    }
  }
}
