import type { ExchangeAnswer, FactoryReport, ModelDemand, ServingNode } from '../../shared/factory/factory-exchange.ts';
import { isAlwaysOn } from '../accounts/model-access.ts';
import type { Env } from '../env.ts';
import { GatewayObject } from '../platform/gateway-object.ts';
import type { ObjectContext } from '../platform/object-context.ts';
import { isolateSnapshot, type RegistrySnapshot } from '../registry/isolate-snapshot.ts';
import { type BacklogDemand, DemandSignals, type QueueDemand } from './demand-signals.ts';
import { DrainOrders } from './drain-orders.ts';
import {
  type FactoryIdentity,
  FactoryReports,
  factoryKey,
  isFactorySilent,
  type KnownReport,
} from './factory-reports.ts';
import { DemandTimelines, type ModelTimeline } from './forecast-timelines.ts';
import { BusyTimes, replicasOf, servingNodes } from './serving-nodes.ts';
import { type StartableModel, startableModels } from './startable-models.ts';

/**
 * Interval at which the demand for a waiting autoscaler is checked. A request for a model that is not running is
 * reported without this delay.
 */
const POLL_MS = 1_000;
/** A model that was requested less than this ago is reported to its autoscaler immediately. */
const RECENT_REQUEST_MS = 60_000;

/**
 * Result of an exchange. `over`: a newer exchange of the same autoscaler replaced this one, or its token was revoked.
 */
export type ExchangeReply = { kind: 'answer'; answer: ExchangeAnswer } | { kind: 'over' };

/** An autoscaler's state for operators. */
export interface FactoryView extends KnownReport {
  silent: boolean;
  demand: ModelDemand[];
}

interface WaitingExchange {
  /** Checks again whether the demand has changed. */
  look(): void;
  end(): void;
}

/** The last answer to one autoscaler, without the values that change constantly. */
interface LastAnswer {
  digest: string;
  number: number;
}

/**
 * The factory object: reports of all autoscalers, the demand for their models, and their waiting exchanges. It stores
 * the timelines, and the models, clusters and history of each report. Everything else is only in memory: after an
 * eviction, senders send it again within half a minute.
 */
export class FactoryObject extends GatewayObject {
  readonly #epoch = crypto.randomUUID().slice(0, 8);
  readonly #reports: FactoryReports;
  readonly #timelines: DemandTimelines;
  readonly #signs = new DemandSignals();
  readonly #busy = new BusyTimes();
  readonly #drains: DrainOrders;
  /** Waiting exchanges, at most one per autoscaler. */
  readonly #waiting = new Map<string, WaitingExchange>();
  readonly #lastReplies = new Map<string, LastAnswer>();
  #answers = 0;

  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    this.#reports = new FactoryReports(ctx);
    this.#timelines = new DemandTimelines(ctx);
    this.#drains = new DrainOrders(env);
  }

  /**
   * Stores a report. Resolves with the demand when it differs from the autoscaler's last answer, or after the longest
   * allowed wait.
   */
  async exchange(identity: FactoryIdentity, report: FactoryReport): Promise<ExchangeReply> {
    const name = factoryKey(identity);
    this.#waiting.get(name)?.end();
    const dropped = this.#reports.put(identity, report, this.#now);
    // Ends the exchange of a dropped autoscaler, because a waiting exchange costs a check every second.
    if (dropped !== undefined) this.#waiting.get(dropped)?.end();
    this.#signs.retain(new Set(this.#reports.all().flatMap(({ models }) => models.map(({ id }) => id))));
    this.ctx.waitUntil(this.#drains.give(identity, report.drain, await this.#view(), this.#now));
    const answer = await this.#answerOf(identity, report);
    if (answer.revision !== report.after || report.wait_ms === 0) return { kind: 'answer', answer };
    return this.#hold(identity, report);
  }

  #hold(identity: FactoryIdentity, report: FactoryReport): Promise<ExchangeReply> {
    const name = factoryKey(identity);
    const { clock } = this.ctx;
    return new Promise((resolve, reject) => {
      const over = () => {
        stopLooking();
        stopWaiting();
        if (this.#waiting.get(name) === waiting) this.#waiting.delete(name);
      };
      const done = (reply: ExchangeReply) => {
        over();
        resolve(reply);
      };
      const failed = (error: unknown) => {
        over();
        reject(error);
      };
      const look = (late: boolean): void => {
        this.#answerOf(identity, report).then((answer) => {
          if (late || answer.revision !== report.after) done({ kind: 'answer', answer });
        }, failed);
      };
      const waiting: WaitingExchange = { look: () => look(false), end: () => done({ kind: 'over' }) };
      const stopLooking = clock.every(POLL_MS, () => look(false));
      const stopWaiting = clock.after(report.wait_ms, () => look(true));
      this.#waiting.set(name, waiting);
    });
  }

  /** Stores how many requests wait for a model. False: no autoscaler has the model, so the sender may pause. */
  queued(model: string, sign: QueueDemand): boolean {
    if (!this.#isWanted(model)) return false;
    this.#signs.queued(model, sign, this.#now);
    this.#wake();
    return true;
  }

  /** Records that a request was refused because the model is not running, and that the request may start it. */
  asked(model: string): void {
    if (!this.#isWanted(model)) return;
    this.#signs.asked(model, this.#now);
    this.#wake();
  }

  /** Stores how many batch lines wait for a model. False: no autoscaler has the model, so the sender may pause. */
  backlog(model: string, sign: BacklogDemand): boolean {
    if (!this.#isWanted(model)) return false;
    this.#signs.backlog(model, sign, this.#now);
    this.#wake();
    return true;
  }

  /**
   * Returns the models that autoscalers start on request, except models that are served, and models of silent
   * autoscalers.
   */
  startable(): StartableModel[] {
    return startableModels(this.#reports.live(this.#now), this.#now);
  }

  /** Stores timelines: what a planner that follows a forecast observed and did. */
  tellTimelines(timelines: readonly ModelTimeline[]): void {
    for (const one of timelines) this.#timelines.put(one);
  }

  timelines(): ModelTimeline[] {
    return this.#timelines.all();
  }

  /** Returns all autoscalers, for operators. */
  async show(): Promise<FactoryView[]> {
    const view = await this.#view();
    return this.#reports.all().map((report) => ({
      ...report,
      silent: isFactorySilent(report, this.#now),
      demand: report.models.map(({ id }) => this.#demandFor(id, view)),
    }));
  }

  /** Drops the reports of a revoked token. */
  forget(tokenId: string): void {
    this.#reports.forget(tokenId);
    for (const [name, waiting] of this.#waiting) if (name.startsWith(`${tokenId}/`)) waiting.end();
  }

  #isWanted(model: string): boolean {
    return this.#reports.all().some(({ models }) => models.some(({ id }) => id === model));
  }

  #wake(): void {
    for (const waiting of [...this.#waiting.values()]) waiting.look();
  }

  async #answerOf(identity: FactoryIdentity, { models }: Pick<FactoryReport, 'models'>): Promise<ExchangeAnswer> {
    const view = await this.#view();
    const now = this.#now;
    this.#busy.observe(view.nodes, this.#signs.batchNodes(now), now);
    const demand = models.map(({ id }) => this.#demandFor(id, view)).filter(isDemand);
    const own = new Set(models.map(({ id }) => id));
    const nodes = servingNodes(view.nodes, identity, own, this.#busy, now);
    return { version: 1, revision: this.#revisionOf(factoryKey(identity), demand, nodes), demand, nodes };
  }

  #demandFor(model: string, { nodes, settings }: RegistrySnapshot): ModelDemand {
    const { ready, inFlight, busy } = replicasOf(nodes, model);
    const demand = { ...this.#signs.of(model, ready, this.#now), in_flight: inFlight, busy };
    // This demand stays after a replica has started to serve the model. Otherwise the autoscaler would end that replica
    // again.
    return isAlwaysOn(settings, model, this.#now) ? { ...demand, wanted: [ALWAYS_ON] } : demand;
  }

  #revisionOf(name: string, demand: readonly ModelDemand[], nodes: readonly ServingNode[]): string {
    const digest = JSON.stringify([demand.map(coarse), nodes.map(({ session, state }) => [session, state])]);
    const lastReplies = this.#lastReplies.get(name);
    // One counter numbers the answers to all autoscalers, so that an autoscaler that was dropped and returns gets no
    // number that it already had.
    const number = lastReplies?.digest === digest ? lastReplies.number : ++this.#answers;
    if (lastReplies?.digest !== digest) {
      this.#lastReplies.delete(name);
      this.#lastReplies.set(name, { digest, number });
      const oldest = this.#lastReplies.keys().next().value;
      if (this.#lastReplies.size > REPLIES_MAX && oldest !== undefined) this.#lastReplies.delete(oldest);
    }
    return `${this.#epoch}.${number}`;
  }

  async #view(): Promise<RegistrySnapshot> {
    const view = await isolateSnapshot.get(this.env, this.ctx, this.#now, () => true);
    // Drops stale loads. Requests to models drop them too, but if there are no requests, a node's last load would stay,
    // and the node would never count as idle.
    view.nodes.live.expire(this.#now);
    return view;
  }

  get #now(): number {
    return this.ctx.clock.now();
  }
}

/** Maximum last answers that are remembered: one per autoscaler that may report. */
const REPLIES_MAX = 64;

/** Demand for each model that the catalog marks as always on: each autoscaler with a recipe keeps one replica. */
const ALWAYS_ON = { from: 'the catalogue (always on)', replicas: 1 };

function isDemand({ waiting, queued, in_flight, asked_ms_ago, ready_replicas, batch, wanted }: ModelDemand): boolean {
  if (waiting + queued + in_flight + ready_replicas > 0) return true;
  return asked_ms_ago !== undefined || batch !== undefined || wanted !== undefined;
}

/**
 * Rounds a demand to orders of magnitude. Only changes of the rounded values are reported immediately, not each
 * request.
 */
function coarse({ model, waiting, queued, asked_ms_ago, busy, ready_replicas, batch, wanted }: ModelDemand): unknown {
  const lately = asked_ms_ago !== undefined && asked_ms_ago < RECENT_REQUEST_MS;
  const steps = [waiting, queued, batch?.lines ?? 0].map((n) => (n === 0 ? 0 : 1 + Math.floor(Math.log2(n))));
  return [model, steps, lately, Math.round(busy * 4), ready_replicas, wanted !== undefined];
}
