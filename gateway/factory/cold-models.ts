import { FACTORY_SILENT_AFTER_MS } from '../../shared/factory/factory-exchange.ts';
import type { ColdModel } from '../../shared/proxy/cold-model.ts';
import { isTrusted, LOCAL_ISSUER, type Trust } from '../../shared/routing/trusted-providers.ts';
import { AdaptiveTimeout } from '../../shared/timing/adaptive-timeout.ts';
import { isRecent } from '../../shared/timing/is-recent.ts';
import type { Account } from '../accounts/account.ts';
import { type GatewaySettings, mayPublish } from '../accounts/gateway-settings.ts';
import type { Env } from '../env.ts';
import type { Background } from '../platform/object-context.ts';
import { waitAtMost, waitClock } from '../platform/wait-clock.ts';
import { FACTORY_OBJECT_NAME } from './factory-object-name.ts';
import type { StartableModel } from './startable-models.ts';

/** Minimum interval between two calls of one isolate to the factory object. */
const FRESH_MS = 1_000;
/**
 * Minimum interval if a request needs a model that this isolate does not know: an autoscaler may just have reported it.
 */
const FAST_POLL_MS = 100;
/**
 * Bounds on how long a request waits for the factory object's answer. After this time the request uses the last known
 * list.
 */
const ANSWER = { leastMs: 2_000, mostMs: 20_000 };
/** Maximum models for which this isolate remembers when it last reported a request. */
const REQUESTED_MAX = 1_000;

interface Context {
  env: Pick<Env, 'FACTORY'>;
  ctx: Background;
}

/**
 * The models that autoscalers can start, as one isolate knows them. The list is read again only for requests that no
 * node can serve, and for lists that show all models.
 */
class ColdModelCache {
  #known: readonly StartableModel[] = [];
  #knownAt = Number.NEGATIVE_INFINITY;
  #refreshing: { done: Promise<void>; since: number } | undefined;
  readonly #answers = new AdaptiveTimeout(ANSWER);
  readonly #askedAt = new Map<string, number>();

  /**
   * Reads the list again. Never rejects: while the factory object does not answer, the old list stays valid for
   * FACTORY_SILENT_AFTER_MS.
   * @param wanted models that the request needs. If the list contains none of them, FAST_POLL_MS applies and not
   * FRESH_MS
   */
  refresh({ env, ctx }: Context, now: number, wanted: readonly string[] = []): Promise<void> | undefined {
    const isKnown = wanted.length === 0 || this.#known.some(({ id }) => wanted.includes(id));
    if (isKnown && isRecent(FRESH_MS, this.#knownAt, now)) return undefined;
    if (isRecent(FAST_POLL_MS, this.#knownAt, now))
      return pause(this.#knownAt + FAST_POLL_MS - now).then(() => this.#refreshed({ env, ctx }, Date.now()));
    return this.#refreshed({ env, ctx }, now);
  }

  /** Waits for the call in progress, or starts one. */
  #refreshed({ env, ctx }: Context, now: number): Promise<void> {
    // If the request that started the call is canceled, the call never settles. So after `#answers.ms` another request
    // starts a new call.
    if (this.#refreshing === undefined || !isRecent(this.#answers.ms, this.#refreshing.since, now)) {
      const refreshing = { done: this.#ask(env, now), since: now };
      this.#refreshing = refreshing;
      ctx.waitUntil(refreshing.done);
      const over = () => {
        if (this.#refreshing === refreshing) this.#refreshing = undefined;
      };
      refreshing.done.then(over, over);
    }
    return waitAtMost(this.#refreshing.done, this.#answers.ms);
  }

  async #ask(env: Pick<Env, 'FACTORY'>, now: number): Promise<void> {
    const from = waitClock.now();
    try {
      this.#known = await env.FACTORY.getByName(FACTORY_OBJECT_NAME).startable();
      this.#knownAt = now;
      // Late answers are measured too: after an answer that came too late for its requests, later requests wait longer.
      this.#answers.answered(waitClock.now() - from);
    } catch {
      // The object did not answer, for example because it restarts. The old list stays.
    }
  }

  /**
   * Returns all models that can be started at `now`, with the remaining time of their estimates. Models that their
   * provider may not publish are omitted.
   */
  all(now: number, settings: Pick<GatewaySettings, 'providers'>): StartableModel[] {
    const age = now - this.#knownAt;
    if (!(Math.abs(age) < FACTORY_SILENT_AFTER_MS)) return [];
    const given = this.#known.filter(({ provider, id }) => mayPublish(settings, provider, id));
    return given.map((one) => {
      const left = one.readyInMs === undefined ? 0 : one.readyInMs - age;
      return { ...one, readyInMs: left > 0 ? left : undefined };
    });
  }

  /**
   * Reports that a request needs the model and does not wait for it. The report is sent immediately, at most once a
   * second per model.
   */
  ask(model: string, { env, ctx }: Context, now: number): void {
    const before = this.#askedAt.get(model);
    if (before !== undefined && isRecent(FRESH_MS, before, now)) return;
    this.#askedAt.delete(model);
    this.#askedAt.set(model, now);
    const oldest = this.#askedAt.keys().next().value;
    if (this.#askedAt.size > REQUESTED_MAX && oldest !== undefined) this.#askedAt.delete(oldest);
    ctx.waitUntil(
      env.FACTORY.getByName(FACTORY_OBJECT_NAME)
        .asked(model)
        .catch(() => {}),
    );
  }
}

/** The cache of this isolate. */
export const coldModels = new ColdModelCache();

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/**
 * Known properties of the node that a job will become. Its region is unknown, so the node does not match a request that
 * requires a region.
 */
const JOB = { issuer: LOCAL_ISSUER, tier: 'volatile' };

/**
 * Returns the model as one caller sees it. If several autoscalers of trusted providers can start it, the state that is
 * nearest to ready counts.
 */
export function coldModelFor(
  model: string,
  known: readonly StartableModel[],
  trust: Trust,
  account: Pick<Account, 'keyId' | 'projectId'>,
): ColdModel | undefined {
  const seen = known
    .filter(({ id, provider }) => id === model && isTrusted(trust, { ...JOB, provider }))
    .map((one) => coldOf(one, account));
  return seen.toSorted(
    (a, b) =>
      rank(a) - rank(b) || (a.readyInMs ?? Number.POSITIVE_INFINITY) - (b.readyInMs ?? Number.POSITIVE_INFINITY),
  )[0];
}

function coldOf(
  { id, state, readyInMs, percent, where, wake }: StartableModel,
  { keyId, projectId }: Pick<Account, 'keyId' | 'projectId'>,
): ColdModel {
  const mayStart =
    wake === undefined || wake.keys.includes(keyId) || (projectId !== undefined && wake.projects.includes(projectId));
  return { model: id, state, readyInMs, percent, where, mayStart };
}

const ORDER: readonly ColdModel['state'][] = ['loading', 'starting', 'queued', 'cold', 'resting'];

function rank({ state, mayStart }: ColdModel): number {
  return state === 'cold' && !mayStart ? ORDER.length : ORDER.indexOf(state);
}
