// Not by name: a Node that is too old lacks `isUtf8`, and must be able to say so.
import * as buffer from 'node:buffer';
import { type AttemptError, apiErrorFor } from '../../shared/attempts/attempt-error.ts';
import type { AttemptFailure } from '../../shared/attempts/attempt-request.ts';
import { ByteBudget } from '../../shared/attempts/byte-budget.ts';
import type { ParsedRequest } from '../../shared/attempts/parsed-request.ts';
import type { ResponseStream } from '../../shared/attempts/started-response.ts';
import type { ApiError } from '../../shared/openai/api-errors.ts';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import { BodyMemory } from '../../shared/proxy/body-memory.ts';
import type { ClientDisconnect } from '../../shared/proxy/client-disconnect.ts';
import { findColdModel, modelNotRunningError } from '../../shared/proxy/cold-model.ts';
import { noCapacityError } from '../../shared/proxy/filter-nodes.ts';
import type {
  AttemptContext,
  BodyLimits,
  Host,
  HostClock,
  NodeMemory,
  QueueRequest,
  ReserveRequest,
  Route,
} from '../../shared/proxy/proxy-host.ts';
import type { ProxyRequest } from '../../shared/proxy/proxy-http-types.ts';
import { RETRY_BODY_MIN_BYTES } from '../../shared/proxy/read-body.ts';
import type { StoredResponses } from '../../shared/proxy/stored-response-index.ts';
import type { TurnResult } from '../../shared/queue/wait-queue.ts';
import { BusyNodes, REFUSED_MS } from '../../shared/routing/busy-nodes.ts';
import type { Candidate } from '../../shared/routing/candidates.ts';
import { CircuitBreakers } from '../../shared/routing/circuit-breakers.ts';
import type { BreakerState } from '../../shared/routing/node-load.ts';
import { RetryBudget } from '../../shared/routing/retry-budget.ts';
import { marksSuspected, type RequestOutcome } from '../../shared/routing/retry-policy.ts';
import { type Account, isRecordingDeclined, isTraceDeclined, requireEndpoint } from '../accounts/account.ts';
import { authenticate } from '../accounts/authenticate.ts';
import { withoutTrace } from '../accounts/find-key.ts';
import type { GatewaySettings } from '../accounts/gateway-settings.ts';
import { recordLastUse } from '../accounts/last-used.ts';
import { forecastTokens, type LimitReservation, reserve } from '../accounts/limits/limit-reservation.ts';
import { mediaAmountOf } from '../accounts/limits/month-amounts.ts';
import { isCounted } from '../accounts/reasoning-budget.ts';
import type { Env } from '../env.ts';
import { environmentNumber } from '../environment-checks.ts';
import { coldModels } from '../factory/cold-models.ts';
import type { HttpRequest } from '../http/http-request.ts';
import { bodyStallMs } from '../http/read-body.ts';
import type { LoggedRequest } from '../observe/request-log.ts';
import { RequestLog } from '../observe/request-log.ts';
import type { Background } from '../platform/object-context.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import { startTimer } from '../platform/start-timer.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import { waitClock } from '../platform/wait-clock.ts';
import { localWaiters } from '../queue/local-waiters.ts';
import { waitForTurn } from '../queue/wait-for-turn.ts';
import { isolateSnapshot } from '../registry/isolate-snapshot.ts';
import { recordRefusal } from '../usage/refusal-writer.ts';
import { openAttempt } from './open-attempt.ts';
import { type GatewayRoute, type ModelCaller, resolveModelRoute, servesAny } from './resolve-route.ts';
import { storedResponses } from './stored-responses.ts';

/** How many retries this isolate may make. */
const retryBudget = new RetryBudget();

const breakers = new CircuitBreakers(isolateSnapshot.view.nodes.live);

/** Publishes a circuit breaker's state: all isolates get it with their next snapshot. */
function publishBreaker(session: string, breaker: BreakerState, { env, ctx }: { env: Env; ctx: Background }): void {
  // If the registry object is restarting, this call fails. Other isolates then detect the node's failure by their own
  // requests.
  const published = env.REGISTRY.getByName(REGISTRY_OBJECT_NAME).live(session, { breaker });
  ctx.waitUntil(Promise.resolve(published).catch(() => {}));
}

/** Nodes that this isolate found busy. */
const busyNodes = new BusyNodes();

interface Context {
  env: Env;
  ctx: Background;
}

/**
 * A `RequestLog` that also writes the usage record of a request that no engine received. A request that an engine
 * received is recorded by its node's report.
 */
class GatewayRecord extends RequestLog {
  readonly #request: ProxyRequest;
  readonly #context: Context;

  constructor(seen: Readonly<LoggedRequest>, request: ProxyRequest, context: Context) {
    super(seen, request, request.client, context);
    this.#request = request;
    this.#context = context;
  }

  override refused(error: unknown): void {
    super.refused(error);
    this.#recordRefusal(error);
  }

  override refusedLate(error: ApiError, cause: unknown): void {
    super.refusedLate(error, cause);
    this.#recordRefusal(cause);
  }

  /** If the client disconnected, the queue object writes the record, or the node's report creates it. */
  #recordRefusal(error: unknown): void {
    const { env, ctx } = this.#context;
    if (!this.#request.client.disconnected) recordRefusal(this.seen, error, this.queuedMs, env, ctx);
  }
}

const BUDGET_DEFAULT_BYTES = 48 * 1024 * 1024;
const LIMIT_DEFAULT_BYTES = 32 * 1024 * 1024 + RETRY_BODY_MIN_BYTES;

/**
 * Maximum memory for the first MiB of each body that is still arriving; the rest counts in BODY_BUDGET_BYTES. When it
 * is full, bodies wait for each other, and stalled bodies are dropped.
 */
const UPLOADS_DEFAULT_BYTES = 32 * 1024 * 1024;
/** UPLOADS_DEFAULT_BYTES for a self-hosted process, which has more memory than Cloudflare's 128 MiB. */
const UPLOADS_STANDALONE_BYTES = 128 * 1024 * 1024;

/** Maximum bytes of bodies and texts that an isolate keeps for streams that may have to be resumed. */
const RESUMABLE_MAX_BYTES = 16 * 1024 * 1024;

/**
 * A stream that has waited for this time is opened with comments, because proxies cut a connection that is silent for
 * 100 s.
 */
const PING_MS = 15_000;

export const hostClock: HostClock = {
  now: () => Date.now(),
  steadyNow,
  after: waitClock.after,
  timer: startTimer,
  random: Math.random,
  newId: () => crypto.randomUUID(),
};

/** What this isolate has observed of nodes. */
const memory: NodeMemory = {
  breakers,
  retries: retryBudget,
  busy: busyNodes,
  refused: new BusyNodes(REFUSED_MS),
};
const kept = new ByteBudget(BUDGET_DEFAULT_BYTES);
const resumable = new ByteBudget(RESUMABLE_MAX_BYTES);
let uploads: BodyMemory | undefined;

/**
 * The gateway as the host of the request pipeline, for one request: on Workers, background work and bindings belong to
 * a request.
 */
export class GatewayHost implements Host<ModelCaller> {
  readonly clock = hostClock;
  readonly memory = memory;
  readonly pingMs = PING_MS;
  readonly #http: HttpRequest;
  readonly #client: ClientDisconnect;
  readonly #env: Env;
  readonly #background: Background;
  #record: GatewayRecord | undefined;

  constructor(http: HttpRequest, client: ClientDisconnect, env: Env, background: Background) {
    this.#http = http;
    this.#client = client;
    this.#env = env;
    this.#background = background;
  }

  get responses(): StoredResponses<ModelCaller> {
    return storedResponses(this.#env, this.#background);
  }

  get bodies(): BodyLimits {
    const env = this.#env;
    const uploadsDefault = env.OBJECTS_STAY === 'on' ? UPLOADS_STANDALONE_BYTES : UPLOADS_DEFAULT_BYTES;
    uploads ??= new BodyMemory(environmentNumber(env, 'BODY_UPLOADS_BYTES') ?? uploadsDefault);
    return {
      maxBytes: environmentNumber(env, 'BODY_LIMIT_BYTES') ?? LIMIT_DEFAULT_BYTES,
      isUtf8: buffer.isUtf8,
      stallMs: bodyStallMs(env),
      memory: uploads,
      kept,
      keptMaxBytes: environmentNumber(env, 'BODY_BUDGET_BYTES') ?? BUDGET_DEFAULT_BYTES,
      resumable,
    };
  }

  record(request: ProxyRequest, info: Readonly<LoggedRequest>): GatewayRecord {
    this.#record = new GatewayRecord(info, request, { env: this.#env, ctx: this.#background });
    return this.#record;
  }

  identify(): ModelCaller | Promise<ModelCaller> {
    isolateSnapshot.locate(this.#http);
    const view = isolateSnapshot.get(this.#env, this.#background, Date.now(), () => true);
    return view instanceof Promise ? view.then(({ settings }) => this.#caller(settings)) : this.#caller(view.settings);
  }

  #caller(settings: GatewaySettings): ModelCaller | Promise<ModelCaller> {
    const found = authenticate(this.#env, this.#http, settings, Date.now());
    const callerOf = (account: Account) => ({ account, settings, untracked: false });
    if (isTraceDeclined(this.#http)) return this.#untraced(found).then(callerOf);
    return found instanceof Promise ? found.then(callerOf) : callerOf(found);
  }

  async #untraced(found: Account | Promise<Account>): Promise<Account> {
    return withoutTrace(this.#env, await found);
  }

  authorize(_request: ProxyRequest, caller: ModelCaller, endpoint: Endpoint): void {
    requireEndpoint(caller.account, endpoint);
    recordLastUse(caller.account, this.#env, this.#background, Date.now());
    caller.untracked = isRecordingDeclined(caller.account, this.#http);
  }

  resolve(_request: ProxyRequest, caller: ModelCaller, parsed: ParsedRequest): Route | Promise<Route> {
    return resolveModelRoute(this.#http, caller, parsed, { env: this.#env, ctx: this.#background });
  }

  reserve(reserved: ReserveRequest<ModelCaller>): undefined | Promise<LimitReservation> {
    const { limits, keyId } = reserved.caller.account;
    if (limits === undefined || !isCounted(limits)) return undefined;
    const { name, model, endpoint, parsed, attempts } = reserved;
    const forecast = forecastTokens(this.#http, endpoint, parsed);
    const context = { env: this.#env, ctx: this.#background };
    return reserve(
      context,
      { limits, keyId },
      {
        ...{ forecast, media: mediaAmountOf(endpoint), name, model, client: this.#client, attempts },
      },
    );
  }

  isQueued(model: string, scope: () => string): boolean {
    return localWaiters.has(model, scope);
  }

  async positionInQueue(model: string, name: string): Promise<number | undefined> {
    const position = await this.#env.QUEUE.getByName(model).position(name);
    return position ?? undefined;
  }

  waitForTurn(queued: QueueRequest<ModelCaller>): Promise<TurnResult> {
    const { settings } = (queued.route as GatewayRoute).view;
    return waitForTurn(queued, { env: this.#env, settings: settings.queue, signal: this.#http.signal });
  }

  refresh(models: readonly string[]): undefined | Promise<void> {
    const view = isolateSnapshot.get(this.#env, this.#background, Date.now(), (now) => servesAny(now.nodes, models));
    if (!(view instanceof Promise)) return undefined;
    const cold = coldModels.refresh({ env: this.#env, ctx: this.#background }, Date.now());
    return Promise.all([view, cold]).then(() => {});
  }

  open(attempt: AttemptContext<ModelCaller>): Promise<ResponseStream> {
    const http = this.#http;
    return openAttempt(attempt, {
      env: this.#env,
      ctx: this.#background,
      signal: () => http.signal,
      client: this.#client,
      offloads: http.offloads === true,
    });
  }

  onAttemptFailed({ session }: Candidate, code: AttemptFailure): void {
    if (!marksSuspected(code)) return;
    isolateSnapshot.suspect(session, Date.now(), code === 'gone');
    this.#record?.suspected();
  }

  onAttemptEnded(session: string, _ending: RequestOutcome, breaker: BreakerState | undefined): void {
    if (breaker !== undefined) publishBreaker(session, breaker, { env: this.#env, ctx: this.#background });
  }

  refusal(route: Route, failure: AttemptError | undefined): ApiError {
    if (failure !== undefined) return apiErrorFor(failure);
    const cold = findColdModel(route);
    return cold?.state === 'resting' ? modelNotRunningError(cold.model) : noCapacityError(route.request.model);
  }
}
