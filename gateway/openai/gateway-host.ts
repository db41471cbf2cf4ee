import type { Endpoint } from '../../shared/openai/endpoints.ts';
import type { ApiError } from '../../shared/openai/errors.ts';
import { BodyMemory } from '../../shared/proxy/body-memory.ts';
import type { ClientDisconnect } from '../../shared/proxy/client-disconnect.ts';
import { coldOf, modelResting } from '../../shared/proxy/cold-model.ts';
import { noCapacity } from '../../shared/proxy/filter.ts';
import type {
  AttemptContext,
  BodyLimits,
  Clock,
  Host,
  NodeMemory,
  QueueRequest,
  ReserveRequest,
  Route,
} from '../../shared/proxy/host.ts';
import type { ProxyRequest } from '../../shared/proxy/message.ts';
import { KEPT_ALWAYS_BYTES } from '../../shared/proxy/read-body.ts';
import type { PlaceAnswer } from '../../shared/queue/wait-queue.ts';
import { castsSuspicion, type Ending } from '../../shared/routing/attempts.ts';
import type { Candidate } from '../../shared/routing/candidates.ts';
import type { BreakerState } from '../../shared/routing/load.ts';
import type { AttemptFailure } from '../../shared/upstream/attempt.ts';
import { type AttemptError, apiErrorFor } from '../../shared/upstream/attempt-error.ts';
import { ByteBudget } from '../../shared/upstream/byte-budget.ts';
import type { ParsedRequest } from '../../shared/upstream/parsed-request.ts';
import type { ResponseStream } from '../../shared/upstream/response.ts';
import { type Account, optsOut, requireEndpoint } from '../accounts/account.ts';
import { authenticate } from '../accounts/authenticate.ts';
import { touch } from '../accounts/last-used.ts';
import { forecastOf, type LimitReservation, reserve } from '../accounts/limits/limit-reservation.ts';
import { isCounted } from '../accounts/reasoning.ts';
import type { Settings } from '../accounts/settings.ts';
import { bodyStallMs } from '../body-pieces.ts';
import type { Env } from '../env.ts';
import { coldModels } from '../factory/cold-models.ts';
import type { HttpRequest } from '../http.ts';
import type { Background } from '../object-context.ts';
import type { LoggedRequest } from '../observe/request-log.ts';
import { patience } from '../patience.ts';
import { busyNodes } from '../queue/busy.ts';
import { waitForTurn } from '../queue/wait-for-turn.ts';
import { waitingHere } from '../queue/waiting-here.ts';
import { snapshots } from '../registry/snapshot.ts';
import { breakers, retryBudget, tellBreaker } from '../routing/node-memory.ts';
import { steadyNow } from '../steady-clock.ts';
import { GatewayRecord } from './gateway-record.ts';
import { openAttempt } from './open-attempt.ts';
import { type GatewayRoute, resolveRoute, servesAny } from './resolve-route.ts';

const BUDGET_DEFAULT_BYTES = 48 * 1024 * 1024;
const LIMIT_DEFAULT_BYTES = 32 * 1024 * 1024 + KEPT_ALWAYS_BYTES;

/** Of bodies that are on their way in, up to 1 MiB of each: above this they wait for one another, and those that stand still give way. */
const UPLOADS_DEFAULT_BYTES = 32 * 1024 * 1024;
/** Self-hosted: the process has more memory than Cloudflare's 128 MiB. */
const UPLOADS_STANDALONE_BYTES = 128 * 1024 * 1024;

/** Bodies and texts of streams that may have to continue, of one isolate. */
const RESUMABLE_MAX_BYTES = 16 * 1024 * 1024;

/** A stream that has waited this long is opened with comments: proxies on the way cut what is silent for 100 s. */
const PING_MS = 15_000;

export const clock: Clock = {
  now: () => Date.now(),
  steadyNow,
  after: patience.after,
  random: Math.random,
  newId: () => crypto.randomUUID(),
};

/** Of this isolate. */
const memory: NodeMemory = { breakers, retries: retryBudget, busy: busyNodes };
const kept = new ByteBudget(BUDGET_DEFAULT_BYTES);
const resumable = new ByteBudget(RESUMABLE_MAX_BYTES);
let uploads: BodyMemory | undefined;

/** Whose request it is, and the settings that it began with. */
export interface Caller {
  readonly account: Account;
  readonly settings: Settings;
  /** Its use is counted and not recorded. */
  untracked: boolean;
}

/** This gateway, for one request: on Workers background work and bindings belong to a request. */
export class GatewayHost implements Host<Caller> {
  readonly clock = clock;
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

  get bodies(): BodyLimits {
    const { BODY_LIMIT_BYTES, BODY_BUDGET_BYTES, BODY_UPLOADS_BYTES, OBJECTS_STAY } = this.#env;
    const uploadsDefault = OBJECTS_STAY === 'on' ? UPLOADS_STANDALONE_BYTES : UPLOADS_DEFAULT_BYTES;
    uploads ??= new BodyMemory(Number(BODY_UPLOADS_BYTES ?? uploadsDefault));
    return {
      maxBytes: Number(BODY_LIMIT_BYTES ?? LIMIT_DEFAULT_BYTES),
      stallMs: bodyStallMs(this.#env),
      memory: uploads,
      kept,
      keptMaxBytes: Number(BODY_BUDGET_BYTES ?? BUDGET_DEFAULT_BYTES),
      resumable,
    };
  }

  record(request: ProxyRequest, info: Readonly<LoggedRequest>): GatewayRecord {
    this.#record = new GatewayRecord(info, request, { env: this.#env, ctx: this.#background });
    return this.#record;
  }

  identify(): Caller | Promise<Caller> {
    snapshots.locate(this.#http);
    const view = snapshots.get(this.#env, this.#background, Date.now(), () => true);
    return view instanceof Promise ? view.then(({ settings }) => this.#caller(settings)) : this.#caller(view.settings);
  }

  #caller(settings: Settings): Caller | Promise<Caller> {
    const found = authenticate(this.#env, this.#http, settings, Date.now());
    const callerOf = (account: Account) => ({ account, settings, untracked: false });
    return found instanceof Promise ? found.then(callerOf) : callerOf(found);
  }

  authorize(_request: ProxyRequest, caller: Caller, endpoint: Endpoint): void {
    requireEndpoint(caller.account, endpoint);
    touch(caller.account, this.#env, this.#background, Date.now());
    caller.untracked = optsOut(caller.account, this.#http);
  }

  resolve(_request: ProxyRequest, caller: Caller, parsed: ParsedRequest): Route | Promise<Route> {
    return resolveRoute(this.#http, caller, parsed, { env: this.#env, ctx: this.#background });
  }

  reserve(reserved: ReserveRequest<Caller>): undefined | Promise<LimitReservation> {
    const { limits, keyId } = reserved.caller.account;
    if (limits === undefined || !isCounted(limits)) return undefined;
    const { name, model, endpoint, parsed, attempts } = reserved;
    const forecast = forecastOf(this.#http, endpoint, parsed);
    const context = { env: this.#env, ctx: this.#background };
    return reserve(context, { limits, keyId }, { forecast, name, model, client: this.#client, attempts });
  }

  isQueued(model: string, scope: () => string): boolean {
    return waitingHere.has(model, scope);
  }

  async positionInQueue(model: string, name: string): Promise<number | undefined> {
    const told = await this.#env.QUEUE.getByName(model).position(name);
    return told ?? undefined;
  }

  waitForTurn(queued: QueueRequest<Caller>): Promise<PlaceAnswer> {
    const { settings } = (queued.route as GatewayRoute).view;
    return waitForTurn(queued, { env: this.#env, settings: settings.queue, signal: this.#http.signal });
  }

  refresh(models: readonly string[]): undefined | Promise<void> {
    const view = snapshots.get(this.#env, this.#background, Date.now(), (now) => servesAny(now.nodes, models));
    if (!(view instanceof Promise)) return undefined;
    const cold = coldModels.refresh({ env: this.#env, ctx: this.#background }, Date.now());
    return Promise.all([view, cold]).then(() => {});
  }

  open(attempt: AttemptContext<Caller>): Promise<ResponseStream> {
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
    if (!castsSuspicion(code)) return;
    snapshots.suspect(session, Date.now(), code === 'gone');
    this.#record?.suspected();
  }

  onAttemptEnded(session: string, _ending: Ending, breaker: BreakerState | undefined): void {
    if (breaker !== undefined) tellBreaker(session, breaker, { env: this.#env, ctx: this.#background });
  }

  refusal(route: Route, failure: AttemptError | undefined): ApiError {
    if (failure !== undefined) return apiErrorFor(failure);
    const cold = coldOf(route);
    return cold?.state === 'resting' ? modelResting(cold.model) : noCapacity(route.request.model);
  }
}
