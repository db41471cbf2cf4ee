/** Models that start on demand: how long a request for such a model waits, and the error that its client gets. */
import { ApiError, retryAfter } from '../openai/api-errors.ts';
import type { WaitReason } from '../openai/wait-comment.ts';
import type { RoutingQuery } from '../routing/choose-node.ts';

/** A model that no node serves, and that a factory starts or a node loads on demand. */
export interface ColdModel {
  model: string;
  /**
   * `cold`: a request starts the model. `asleep`: a request wakes its engine. `on-disk`: an adapter, which a request
   * loads. `resting`: its start failed too often, so it is not started until an operator allows it again.
   */
  state: 'cold' | 'queued' | 'starting' | 'loading' | 'resting' | 'asleep' | 'on-disk';
  /** Milliseconds until the model serves; undefined if unknown. */
  readyInMs?: number | undefined;
  /** Percent of the model's weights that are loaded, from 0 to 100. */
  percent?: number | undefined;
  /** Name of the scheduler that has the model's job in its queue, such as `Slurm`. */
  where?: string | undefined;
  /** True if this request may start the model. */
  mayStart: boolean;
}

export interface ColdModels {
  /**
   * The model's state as far as this host knows it. Undefined if a node serves the model, or if no factory starts it.
   */
  find(model: string): ColdModel | undefined;
  /**
   * Asks a factory to start the model, or a node to load it. Called when a request is refused because the model is not
   * running, and while requests wait for a node that loads it.
   */
  ask(model: string): void;
}

/** The part of a route that concerns cold models. */
interface ColdRoute {
  readonly cold?: ColdModels | undefined;
  readonly startWaitMs?: number | undefined;
  /** How long the request waits for a free node. It waits as long for a node that loads the model. */
  readonly waitMs?: number | undefined;
}

/** Value of `retry-after` if the duration of the start is unknown. */
const RETRY_AFTER_DEFAULT_MS = 30_000;
/** Maximum of `retry-after`. After this time the client asks again and gets a new estimate. */
const RETRY_MAX_MS = 3_600_000;

/** The first model of the route that is cold now; undefined if none is. */
export function findColdModel(route: ColdRoute & Pick<RoutingQuery, 'request' | 'fallbacks'>): ColdModel | undefined {
  const { cold } = route;
  if (cold === undefined) return undefined;
  for (const model of [route.request.model, ...route.fallbacks]) {
    const found = cold.find(model);
    if (found !== undefined) return found;
  }
  return undefined;
}

/**
 * How long a request waits for a cold model, in milliseconds.
 * @throws ApiError 403 if the request may not start the model; 503 if the request may not wait, if its wait would end
 * before the model serves, or if the model is not started
 */
export function coldStartWaitMs(cold: ColdModel, route: ColdRoute): number {
  if (cold.state === 'resting') throw modelNotRunningError(cold.model);
  if (isDormant(cold)) return dormantWaitMs(cold, route);
  if (cold.state === 'cold' && !cold.mayStart) throw mayNotStart(cold.model);
  const waitMs = route.startWaitMs ?? 0;
  if (waitMs > 0 && (cold.readyInMs === undefined || cold.readyInMs <= waitMs)) return waitMs;
  if (cold.mayStart) route.cold?.ask(cold.model);
  throw coldStartingError(cold);
}

/** True if a running node has the model and an order loads it. */
export function isDormant({ state }: Pick<ColdModel, 'state'>): boolean {
  return state === 'asleep' || state === 'on-disk';
}

/** A node loads the model within seconds, so a request waits for it without asking for that. */
function dormantWaitMs(cold: ColdModel, route: ColdRoute): number {
  const waitMs = route.startWaitMs ?? route.waitMs ?? 0;
  if (waitMs > 0 && (cold.readyInMs === undefined || cold.readyInMs <= waitMs)) return waitMs;
  route.cold?.ask(cold.model);
  throw coldStartingError(cold);
}

/** 503 `model_starting`. The message says how far the start is, and what the client can do. */
export function coldStartingError({ model, state, readyInMs, percent, where }: ColdModel): ApiError {
  const how = wordsOf({ state, percent, where });
  const left =
    readyInMs === undefined
      ? 'the time until it is ready is unknown'
      : `it will be ready in about ${approximateDuration(readyInMs)}`;
  const message = `The model '${model}' is not running: ${how}; ${left}. Try again later, or wait for it with x-otela-wait: SECONDS.`;
  const again = Math.min(RETRY_MAX_MS, Math.max(1_000, readyInMs ?? RETRY_AFTER_DEFAULT_MS));
  return new ApiError('model_starting', message, { param: 'model', headers: retryAfter(again) });
}

export function modelNotRunningError(model: string): ApiError {
  const message = `The model '${model}' failed to start several times. Ask the operator of this gateway.`;
  return new ApiError('no_capacity', message, { param: 'model', headers: { 'x-should-retry': 'false' } });
}

function mayNotStart(model: string): ApiError {
  const message = `The model '${model}' is not running, and this key may not start it.`;
  return new ApiError('model_not_allowed', message, { param: 'model' });
}

function wordsOf({ state, percent, where }: Pick<ColdModel, 'state' | 'percent' | 'where'>): string {
  switch (state) {
    case 'queued':
      return where === undefined ? 'it waits for a machine' : `it is queued in ${where}`;
    case 'starting':
      return 'its engine starts';
    case 'loading':
      return percent === undefined
        ? 'its engine loads the weights'
        : `its engine has loaded ${percent} % of the weights`;
    case 'asleep':
      return 'its engine sleeps and is being woken';
    case 'on-disk':
      return 'a node loads the adapter';
    default:
      return 'it is being started';
  }
}

/** The model's state, for a comment in a stream that waits. */
export function coldWaitReason({ state, percent, where }: ColdModel): WaitReason {
  switch (state) {
    case 'queued':
      return where === undefined ? { reason: 'starting' } : { reason: 'queued', where };
    case 'loading':
      return percent === undefined ? { reason: 'loading' } : { reason: 'loading', percent };
    case 'on-disk':
      return { reason: 'loading' };
    case 'asleep':
      return { reason: 'waking' };
    default:
      return { reason: 'starting' };
  }
}

/** Formats an approximate duration. */
export function approximateDuration(ms: number): string {
  if (ms < 90_000) return `${Math.max(1, Math.round(ms / 1_000))} s`;
  return ms < 5_400_000 ? `${Math.round(ms / 60_000)} min` : `${Math.round(ms / 3_600_000)} h`;
}

const WAIT_HEADER = 'x-otela-wait';
/** Maximum time to wait: an hour. No client keeps a request open for longer. */
export const START_WAIT_MAX_MS = 3_600_000;

/** How long the request is willing to wait for a model that is being started, in milliseconds. @throws ApiError 400 */
export function readStartWait(given: string | null | undefined): number | undefined {
  if (given === null || given === undefined) return undefined;
  const seconds = /^\d{1,6}$/.test(given.trim()) ? Number(given) : Number.NaN;
  if (seconds * 1_000 <= START_WAIT_MAX_MS) return seconds * 1_000;
  const message = `${WAIT_HEADER} must be a whole number of seconds from 0 to ${START_WAIT_MAX_MS / 1_000}.`;
  throw new ApiError('invalid_request', message, { param: WAIT_HEADER });
}
