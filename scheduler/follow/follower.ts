/** `otela-plan watch --forecast`: in each slot counts, forecasts, decides, and hands over a plan. */

import type { RateTable } from '../assignment/rate-table.ts';
import { type Observation, observe, type PlanningContext } from '../live/observation.ts';
import type { Placement } from '../solver/planning-problem.ts';
import { demandOf } from './demand-forecaster.ts';
import { DemandSampler, type DemandSamplerOptions, type ModelSample } from './demand-sampler.ts';
import { loadsText } from './describe-loads.ts';
import type { FollowProblem, ForecastDemand, Layout } from './follow-problem.ts';
import { groupedProblem } from './judged-groups.ts';
import { kindShares, SharePublisher, sharesText } from './kind-shares.ts';
import { type NetworkView, networkView, replicasText } from './network-view.ts';
import { type Pin, pinnedLayout } from './pinned-replicas.ts';
import type { MeasuredRates } from './replica-options.ts';
import type { CountedLine, SlotRecord } from './slot-records.ts';
import { changeText, type DecideOptions, Decider, type FollowDecision } from './switch-decision.ts';

/** `horizon`: number of slots ahead in which a change has to pay off. */
export interface FollowOptions extends DecideOptions, DemandSamplerOptions {
  switchS: number;
  wave: number;
  pins: readonly Pin[];
  measured: MeasuredRates;
}

export interface FollowOutput {
  out(line: string): void;
  log(line: string): void;
  /** Called with the wanted replicas in each slot. */
  handOver(observation: Observation, wanted: readonly Placement[]): void;
  /** Stores the records of a slot. Rejects with SchedulerError if that fails. */
  record(records: readonly SlotRecord[]): Promise<void>;
}

export class DemandFollower {
  readonly #context: PlanningContext;
  readonly #options: FollowOptions;
  readonly #output: FollowOutput;
  readonly #publisher: SharePublisher;
  readonly #decider: Decider;
  readonly #counting: DemandSampler;
  readonly #tables = new Map<string, RateTable>();

  constructor(context: PlanningContext, options: FollowOptions, output: FollowOutput, before: readonly CountedLine[]) {
    this.#context = context;
    this.#options = options;
    this.#output = output;
    this.#publisher = new SharePublisher(context.gateway);
    this.#decider = new Decider(options);
    this.#counting = new DemandSampler(context, options, (line) => output.out(line), before);
  }

  /** @throws SchedulerError if the gateway does not answer; the previous plan stays */
  async look(): Promise<void> {
    const looks = await this.#counting.look(this.#slotNow());
    const observation = await observe(this.#context);
    if (looks.length === 0) {
      this.#output.out('no request was for a model of the catalogue: the plan does not change');
      return;
    }
    const view = networkView(looks, observation, this.#context, {
      measured: this.#options.measured,
      tables: this.#tables,
    });
    const problem = this.#problemOf(looks, view);
    const decision = await this.#decider.decide(problem);
    this.#output.out(`${decision.kind}: ${decision.why}`);
    const loads = new Map(problem.models.map((one) => [one.model, loadsText(problem, one, decision)]));
    for (const [model, text] of loads) this.#output.out(`${model}: ${text}`);
    await this.#share(looks, problem, view, (model) => changeS(model, problem, decision));
    const changes =
      decision.kind === 'switch' ? [`would change ${changeText(problem, problem.running, decision.layout)}`] : [];
    for (const line of changes) this.#output.out(line);
    this.#output.handOver(observation, [...placementsIn(problem, decision.layout), ...view.others]);
    await this.#output.record(
      looks.map((look) => {
        const why = `${decision.why}. ${loads.get(look.model.id) ?? ''}`;
        return this.#recordOf(look, view, { ...decision, why }, changes);
      }),
    );
  }

  #slotNow(): number {
    return Math.floor(this.#context.now() / (this.#options.slotS * 1e3));
  }

  #problemOf(looks: readonly ModelSample[], view: NetworkView): FollowProblem {
    const { options, pools, running } = view;
    const models = looks.map(({ model, kinds, followed, expectation }): ForecastDemand => {
      const demand = {
        ...demandOf(model.id, followed.counted.kinds, expectation.forecast, this.#options.slotS),
        examples: kinds.map((kind) => kind.examples),
      };
      const pin = this.#options.pins.find((one) => one.model === model.id || one.model === followed.name);
      if (pin === undefined) return demand;
      const layout = pinnedLayout({ ...pin, model: model.id }, options, running);
      if (layout !== undefined && fits(layout, view)) return { ...demand, pin: layout };
      this.#output.out(`the pin of ${model.id} does not fit on these nodes: its replicas stay`);
      return { ...demand, pin: pinnedLayout({ model: model.id, replicas: [] }, options, running) ?? running };
    });
    const { slotS, switchS, wave } = this.#options;
    const byKind: FollowProblem = { options, pools, models, running, slotS, switchS, wave };
    return looks.reduce((problem, { followed: { confusion } }, n) => {
      const demand = models[n];
      return demand === undefined || confusion === undefined ? problem : groupedProblem(problem, demand, confusion);
    }, byKind);
  }

  async #share(
    looks: readonly ModelSample[],
    problem: FollowProblem,
    view: NetworkView,
    changesIn: (model: string) => number,
  ): Promise<void> {
    for (const { model, name, published, expectation } of looks) {
      const demand = problem.models.find((one) => one.model === model.id);
      if (demand === undefined || published.length === 0) continue;
      const step = Math.max(0, Math.min(demand.mean.length - 1, this.#slotNow() - expectation.slot));
      const shares = kindShares(problem, demand, published, view.serving, step, changesIn(model.id));
      if (shares === undefined) continue;
      if (!(await this.#publisher.publish(name, shares, this.#options.publish))) continue;
      const own = new Map([...view.serving].filter(([i]) => problem.options[i]?.place.model === model.id));
      const text = sharesText(problem, shares, own);
      this.#output.out(`${this.#options.publish ? 'shares' : 'would set shares'} of ${name}: ${text}`);
    }
  }

  #recordOf(look: ModelSample, view: NetworkView, decision: FollowDecision, changes: string[]): SlotRecord {
    const { slotS } = this.#options;
    const { model, name, followed, count, end, expectation } = look;
    const { slot, forecast, methods } = expectation;
    const timeOf = (number: number) => new Date(number * slotS * 1e3).toISOString();
    const last = followed.counted.history(end);
    const { requests, wrong } = count.misjudged;
    const seen = count.slots.get(end - 1);
    // Without a request, response times are 0, which must not be shown as measured.
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

/** Seconds until a change of the model ends; infinite if no change is planned. */
function changeS(model: string, { options, running, slotS, switchS }: FollowProblem, decision: FollowDecision): number {
  const { next, inSlots } = decision;
  const changes = options.some(({ place }, i) => place.model === model && next !== undefined && next[i] !== running[i]);
  return changes ? inSlots * slotS + switchS : Number.POSITIVE_INFINITY;
}

function placementsIn({ options }: FollowProblem, layout: Layout): Placement[] {
  return options.flatMap(({ place, fixed }, i) => (fixed === true ? [] : [{ ...place, replicas: layout[i] ?? 0 }]));
}

function fits(layout: Layout, { options, pools }: NetworkView): boolean {
  return pools.every(({ id, gpus, replicas }) => {
    const own = options.flatMap((one, i) => (one.place.pool === id ? [{ count: layout[i] ?? 0, gpus: one.gpus }] : []));
    const sum = (of: (one: { count: number; gpus: number }) => number) => own.reduce((all, one) => all + of(one), 0);
    return sum(({ count }) => count) <= replicas && sum((one) => one.count * one.gpus) <= gpus;
  });
}
