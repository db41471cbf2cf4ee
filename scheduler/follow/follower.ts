/** One slot after another: count, forecast, decide, change, say what was done. `otela-plan watch --forecast` runs it. */
import { differences } from '../controller/actions.ts';
import { act, type Controller, type Observation, observe } from '../controller/round.ts';
import type { ControllerState } from '../controller/state.ts';
import type { RateTable } from '../orchestration/rates.ts';
import type { Placement } from '../solver/problem.ts';
import { changeText, type DecideOptions, Decider, type FollowDecision } from './decide.ts';
import { demandOf } from './demand-forecaster.ts';
import { DemandSampler, type DemandSamplerOptions, type ModelSample } from './demand-sampler.ts';
import { loadsText } from './explain.ts';
import { type NetworkView, networkView, replicasText } from './network.ts';
import type { MeasuredRates } from './options.ts';
import { type Pin, pinnedLayout } from './pins.ts';
import type { FollowProblem, Layout, ModelDemand } from './problem.ts';
import type { CountedLine, SlotRecord } from './record.ts';
import { kindShares, SharePublisher, sharesText } from './shares.ts';

/** `horizon`: slots ahead in which a change has to pay. */
export interface FollowOptions extends DecideOptions, DemandSamplerOptions {
  switchS: number;
  wave: number;
  pins: readonly Pin[];
  measured: MeasuredRates;
}

export interface FollowOutput {
  out(line: string): void;
  log(line: string): void;
  save(state: ControllerState): void;
  /** Rejects with SchedulerError where they cannot be kept. */
  record(records: readonly SlotRecord[]): Promise<void>;
}

export class DemandFollower {
  readonly #controller: Controller;
  readonly #options: FollowOptions;
  readonly #output: FollowOutput;
  readonly #publisher: SharePublisher;
  readonly #decider: Decider;
  readonly #counting: DemandSampler;
  readonly #tables = new Map<string, RateTable>();
  /** What a change that was begun leads to. */
  #target: readonly Placement[] | undefined;

  constructor(controller: Controller, options: FollowOptions, output: FollowOutput, before: readonly CountedLine[]) {
    this.#controller = controller;
    this.#options = options;
    this.#output = output;
    this.#publisher = new SharePublisher(controller.gateway);
    this.#decider = new Decider(options);
    this.#counting = new DemandSampler(controller, options, (line) => output.out(line), before);
  }

  /** @returns the state after the slot. @throws SchedulerError where the gateway does not answer: what runs goes on */
  async look(before: ControllerState): Promise<ControllerState> {
    const now = this.#slotNow();
    const looks = await this.#counting.look(now);
    const observation = await observe(this.#controller, before);
    for (const event of observation.events) this.#output.out(`note: ${event}`);
    if (looks.length === 0) {
      this.#output.out('no model that the catalogue knows was asked for: what runs is left as it is');
      return observation.state;
    }
    const view = networkView(looks, observation, this.#controller, {
      measured: this.#options.measured,
      tables: this.#tables,
    });
    const problem = this.#problemOf(looks, view);
    const decision = await this.#decide(problem, view, observation);
    this.#output.out(`${decision.kind}: ${decision.why}`);
    const loads = new Map(problem.models.map((one) => [one.model, loadsText(problem, one, decision)]));
    for (const [model, text] of loads) this.#output.out(`${model}: ${text}`);
    await this.#share(looks, problem, view, (model) => this.#changeS(model, problem, decision, observation.state));
    const changes: string[] = [];
    let { state } = observation;
    if (decision.kind === 'switch') {
      if (this.#options.apply) state = await this.#wave(state, changes);
      else changes.push(`would change ${changeText(problem, problem.running, decision.layout)}`);
    }
    await this.#output.record(
      looks.map((look) => {
        const why = `${decision.why}. ${loads.get(look.model.id) ?? ''}`;
        return this.#recordOf(look, view, { ...decision, why }, changes);
      }),
    );
    return state;
  }

  /** A change that was begun goes on, wave after wave, before another one is thought of. */
  async #decide(problem: FollowProblem, view: NetworkView, { state }: Observation): Promise<FollowDecision> {
    const { running } = problem;
    const unseen = state.jobs.filter(({ seen }) => !seen);
    const stay = { layout: running, next: undefined, inSlots: 0, stayCost: 0, bestCost: 0 };
    if (unseen.length > 0)
      return { ...stay, kind: 'wait', why: `${unseen.length} replicas of the last change do not serve yet` };
    if (this.#target !== undefined && differences(this.#target, state, true).actions.length > 0)
      return { ...stay, kind: 'switch', why: 'the next wave of the change' };
    this.#target = undefined;
    const decision = await this.#decider.decide(problem);
    if (decision.kind === 'switch' && this.#options.apply)
      this.#target = [...placementsOf(problem, decision.layout), ...view.others];
    return decision;
  }

  /** Seconds until the wave is over that changes this model, or will soon; infinite: none does. */
  #changeS(
    model: string,
    { options, running, slotS, switchS }: FollowProblem,
    decision: FollowDecision,
    state: ControllerState,
  ): number {
    if (state.jobs.some((job) => job.model === model && !job.seen)) return switchS;
    const left = this.#target === undefined ? [] : differences(this.#target, state, true).actions;
    if (left.some((action) => action.model === model)) return switchS;
    const { next, inSlots } = decision;
    const changes = options.some(
      ({ place }, i) => place.model === model && next !== undefined && next[i] !== running[i],
    );
    return changes ? inSlots * slotS + switchS : Number.POSITIVE_INFINITY;
  }

  #slotNow(): number {
    return Math.floor(this.#controller.now() / (this.#options.slotS * 1e3));
  }

  #problemOf(looks: readonly ModelSample[], view: NetworkView): FollowProblem {
    const { options, pools, running } = view;
    const models = looks.map(({ model, followed, expectation }): ModelDemand => {
      const demand = demandOf(model.id, followed.counted.kinds, expectation.forecast, this.#options.slotS);
      const pin = this.#options.pins.find((one) => one.model === model.id || one.model === followed.name);
      if (pin === undefined) return demand;
      const layout = pinnedLayout({ ...pin, model: model.id }, options, running);
      if (layout !== undefined && fits(layout, view)) return { ...demand, pin: layout };
      this.#output.out(`the pin of ${model.id} does not fit on these nodes: what runs of it stays`);
      return { ...demand, pin: pinnedLayout({ model: model.id, replicas: [] }, options, running) ?? running };
    });
    const { slotS, switchS, wave } = this.#options;
    return { options, pools, models, running, slotS, switchS, wave };
  }

  async #share(
    looks: readonly ModelSample[],
    problem: FollowProblem,
    view: NetworkView,
    changeS: (model: string) => number,
  ): Promise<void> {
    for (const { model, name, published, expectation } of looks) {
      const demand = problem.models.find((one) => one.model === model.id);
      if (demand === undefined || published.length === 0) continue;
      const step = Math.max(0, Math.min(demand.mean.length - 1, this.#slotNow() - expectation.slot));
      const shares = kindShares(problem, demand, published, view.serving, step, changeS(model.id));
      if (shares === undefined) continue;
      if (!(await this.#publisher.publish(name, shares, this.#options.apply))) continue;
      const own = new Map([...view.serving].filter(([i]) => problem.options[i]?.place.model === model.id));
      const text = sharesText(problem, shares, own);
      this.#output.out(`${this.#options.apply ? 'shares' : 'would set shares'} of ${name}: ${text}`);
    }
  }

  /**
   * The next wave of a change that was decided: replicas end, and others start on their nodes. The next one waits until these serve. A
   * failure ends the change: what still runs serves on, and the next slot decides anew.
   */
  async #wave(state: ControllerState, changes: string[]): Promise<ControllerState> {
    const wanted = [...(this.#target ?? [])];
    const { actions, held } = differences(wanted, state, true);
    for (const line of held) this.#output.out(`note: ${line}`);
    const stops = actions.filter(({ kind }) => kind === 'stop').sort(byPool);
    const starts = actions.filter(({ kind }) => kind === 'start').sort(byPool);
    const { wave } = this.#options;
    // Starts for which nodes are idle need no replica to end.
    const free = Math.max(0, starts.length - stops.length);
    const some = free > 0 ? starts.slice(0, free) : [...stops.slice(0, wave), ...starts.slice(0, wave)];
    const whole = some.length === actions.length;
    const {
      state: after,
      done,
      failed,
      later,
    } = await act(this.#controller, { ...state, wanted }, some, (next) => this.#output.save(next));
    changes.push(...done.map((line) => `done: ${line}`), ...failed.map((line) => `FAILED: ${line}`));
    changes.push(...later.map((line) => `LATER: ${line}`));
    for (const line of changes) this.#output.out(line);
    if (failed.length > 0)
      this.#output.out('the change ends here: what runs serves on, and the next slot decides anew');
    // An hour's drain must not keep other changes waiting: the node counts again when it is idle.
    if (later.length > 0) this.#output.out('the change ends here until that node is idle; the next slot decides anew');
    if (whole || failed.length + later.length > 0) this.#target = undefined;
    return after;
  }

  #recordOf(look: ModelSample, view: NetworkView, decision: FollowDecision, changes: string[]): SlotRecord {
    const { slotS } = this.#options;
    const { model, name, followed, count, end, expectation } = look;
    const { slot, forecast, methods } = expectation;
    const timeOf = (number: number) => new Date(number * slotS * 1e3).toISOString();
    const last = followed.counted.history(end);
    const { requests, wrong } = count.misjudged;
    const seen = count.slots.get(end - 1);
    // The times of no request are 0.
    const answered = seen?.requests.some((one) => one > 0) === true ? seen : undefined;
    return {
      at: timeOf(end - 1),
      slot_s: slotS,
      model: name,
      kinds: followed.counted.kinds,
      requests: last.counts.map((series) => series.at(-1) ?? 0),
      expected: { from: timeOf(slot), mean: forecast.mean, low: forecast.low, high: forecast.high },
      methods,
      notes: forecast.notes,
      replicas: replicasText(view, view.running, model.id),
      decision: decision.kind,
      why: decision.why,
      changes: changes.filter((line) => line.includes(model.id)),
      p50_ms: answered?.p50Ms ?? null,
      p99_ms: answered?.p99Ms ?? null,
      misjudged: requests === 0 ? null : wrong / requests,
    };
  }
}

const byPool = (a: { pool: string }, b: { pool: string }): number => (a.pool < b.pool ? -1 : Number(a.pool > b.pool));

function placementsOf({ options }: FollowProblem, layout: Layout): Placement[] {
  return options.flatMap(({ place, fixed }, i) => (fixed === true ? [] : [{ ...place, replicas: layout[i] ?? 0 }]));
}

function fits(layout: Layout, { options, pools }: NetworkView): boolean {
  return pools.every(({ id, gpus, replicas }) => {
    const own = options.flatMap((one, i) => (one.place.pool === id ? [{ count: layout[i] ?? 0, gpus: one.gpus }] : []));
    const sum = (of: (one: { count: number; gpus: number }) => number) => own.reduce((all, one) => all + of(one), 0);
    return sum(({ count }) => count) <= replicas && sum((one) => one.count * one.gpus) <= gpus;
  });
}
