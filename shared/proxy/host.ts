/** What the pipeline needs from its host program: a gateway on Workers, a gateway on Node, or an agent's ingress. */
import type { After } from '../collections/timer.ts';
import type { Endpoint } from '../openai/endpoints.ts';
import type { ApiError } from '../openai/errors.ts';
import type { PlaceAnswer, PlaceRequest } from '../queue/wait-queue.ts';
import type { Ending } from '../routing/attempts.ts';
import type { Breakers } from '../routing/breaker.ts';
import type { BusyNodes } from '../routing/busy.ts';
import type { Candidate } from '../routing/candidates.ts';
import type { Choice, Question } from '../routing/choose.ts';
import type { Priority } from '../routing/fair-queue.ts';
import type { BreakerState } from '../routing/load.ts';
import type { NodeIndex } from '../routing/nodes.ts';
import type { RetryBudget } from '../routing/retry-budget.ts';
import type { Trust } from '../routing/trust.ts';
import type { AttemptFailure } from '../upstream/attempt.ts';
import type { AttemptError } from '../upstream/attempt-error.ts';
import type { ByteBudget } from '../upstream/byte-budget.ts';
import type { AttemptPlan } from '../upstream/dispatch.ts';
import type { DispatchContext } from '../upstream/dispatch-context.ts';
import type { ParsedRequest } from '../upstream/parsed-request.ts';
import type { ResponseStream } from '../upstream/response.ts';
import type { BodyMemory } from './body-memory.ts';
import type { ColdModel } from './cold-model.ts';
import type { ProxyRequest } from './message.ts';

export interface Host<C = unknown> {
  readonly clock: Clock;
  readonly bodies: BodyLimits;
  readonly memory: NodeMemory;
  /** After this time a stream that waits for its node is opened, and then gets a comment so often. Milliseconds. */
  readonly pingMs: number;
  /** Begins the record of one request. */
  record(request: ProxyRequest, info: Readonly<RequestInfo<C>>): Recorder;
  /** Whose request it is. @throws ApiError 401, 403, 503 */
  identify(request: ProxyRequest, endpoint: Endpoint): C | Promise<C>;
  /** Whether this caller may call this endpoint. @throws ApiError 400, 403 */
  authorize(request: ProxyRequest, caller: C, endpoint: Endpoint): void;
  /** What the request asks for, and the nodes that may serve it. @throws ApiError 400, 403 */
  resolve(request: ProxyRequest, caller: C, parsed: ParsedRequest): Route | Promise<Route>;
  /** Takes the request's share of its limits. Undefined if no limit counts it. @throws ApiError 429, 503 */
  reserve(reserved: ReserveRequest<C>): LimitReservation | undefined | Promise<LimitReservation>;
  /** Whether another request waits for the same nodes already. `scope` is asked for only where any request waits. */
  isQueued(model: string, scope: () => string): boolean;
  /** The place of a waiting request, by its name: 1 is next. Undefined if it does not wait now. May reject. */
  positionInQueue(model: string, name: string): number | undefined | Promise<number | undefined>;
  /** One wait for a turn. Resolves with what ended it. @throws AttemptError `cancelled` when the client left */
  waitForTurn(queued: QueueRequest<C>): Promise<PlaceAnswer>;
  /** Brings the route's nodes and cold models up to date after a wait. */
  refresh(models: readonly string[]): void | Promise<void>;
  /** Opens one attempt at one node. @throws AttemptError when no engine's head came */
  open(attempt: AttemptContext<C>): Promise<ResponseStream>;
  /** An attempt failed on its way to its engine or back. */
  onAttemptFailed(node: Candidate, code: AttemptFailure): void;
  /** An attempt ended. `breaker`: the state of the node's breaker, if the attempt changed it. */
  onAttemptEnded(session: string, ending: Ending, breaker: BreakerState | undefined): void;
  /** The error for the client after the last `failure`; without one, no node could be chosen. */
  refusal(route: Route, failure: AttemptError | undefined): ApiError;
}

/** `shared` has no clock and no randomness of its own. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Milliseconds of a clock that is never set back: deadlines do not follow a clock that is set. */
  steadyNow(): number;
  readonly after: After;
  /** Between 0 and 1. */
  random(): number;
  /** A name for a request that cannot be guessed. */
  newId(): string;
}

/** Bounds of request bodies. Bytes and milliseconds. */
export interface BodyLimits {
  /** The largest body that is kept. */
  readonly maxBytes: number;
  /** A body that brings nothing for so long is given up. */
  readonly stallMs: number;
  /** Memory for bodies on their way in. */
  readonly memory: BodyMemory;
  /** Memory for bodies kept for a retry, above the first MiB of each. */
  readonly kept: ByteBudget;
  readonly keptMaxBytes: number;
  /** Memory for streams that may have to continue on another node: request and text. */
  readonly resumable: ByteBudget;
}

/** What this host found out about nodes by asking them. */
export interface NodeMemory {
  readonly breakers: Breakers;
  readonly retries: RetryBudget;
  readonly busy: BusyNodes;
  /** Nodes to pass over while there are others, besides those that the breakers name. Undefined: none. */
  avoided?(now: number): Question['isAvoided'];
}

/** What is known of a request so far. The pipeline fills it in, the recorder reads it. */
export interface RequestInfo<C = unknown> {
  requestId: string;
  /** Milliseconds since the epoch. */
  startedAt: number;
  /** Names the request's streams and its records: random, never the client's own id, which two clients may share. */
  name: string;
  /** Id in the endpoint table. */
  endpoint?: number;
  caller?: C;
  model?: string;
  /** A node serves the model, or did lately. */
  known?: boolean;
  streamed?: boolean;
}

/** An attempt that came to an engine's head. */
export interface Reached {
  region: string | undefined;
  /** The one that was asked for there. */
  model: string;
  /** From the opening to its acknowledgement: a round trip. */
  forwardMs: number;
  /** The engine's own time to its head. */
  engineMs: number;
}

/** Hears each step of a request as it happens. */
export interface Recorder {
  /** The request waits for a node. Call what it returns when the wait has ended. */
  queues(): (outcome: 'turn' | 'full' | 'late') => void;
  /**
   * An attempt at the node of this session got an engine's head with this status, or failed with this code. `reached`: where that was and how
   * long the way there and the engine took.
   */
  attempt(outcome: number | AttemptFailure, session: string, reached?: Reached): void;
  /** The response goes out from now on. */
  answered(status: number, choice: Pick<Choice, 'node' | 'model'>): void;
  /** Refused before anything went out. */
  refused(error: unknown): void;
  /** Refused in-band, after a 200 went out. */
  refusedLate(error: ApiError, cause: unknown): void;
  /** The response broke off. `code`: what the client was told. */
  broke(reason: string, code: string): void;
  /** The client left. Idempotent. */
  left(): void;
  /** The last byte went out. Idempotent. */
  over(): void;
}

/** How one request is routed. */
export interface Route extends Pick<Question, 'request' | 'fallbacks' | 'demand' | 'policyFor' | 'only'> {
  readonly nodes: NodeIndex;
  readonly trust: Trust;
  /** @throws ApiError 400 for a provider that this host does not know; 403 if no provider is trusted; 503 while trust is not known yet */
  requireTrust(): void;
  /** Whether the operator expects nodes that serve the model. Such a model is known, although no node has served it yet. */
  expects(model: string): boolean;
  /** Of every answer to it. Absent: none. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Attempts after the first, and the share of all requests that may be repeated. */
  readonly retriesMax: number;
  readonly retryShare?: number;
  timeoutsFor(model: string): DispatchContext['timeouts'];
  receiptFor(model: string): string;
  /** The receipt of a request that the host makes on its own and that no account pays for. */
  unpaidReceipt(model: string): string;
  /** The longest wait for a node, milliseconds; 0: none. */
  readonly waitMs: number;
  /** A model whose last node left longer ago is not waited for, milliseconds. */
  readonly restartGraceMs: number;
  /** The longest wait for a model that is being started, milliseconds; absent: the request and its key do not say. */
  readonly startWaitMs?: number | undefined;
  /** Models that start on request. Absent: a node that the request may go to serves one of its models, or this host starts no models. */
  readonly cold?: ColdModels | undefined;
  /** Whether a stream that breaks off continues on another node, unless the request says otherwise. */
  readonly resumes: boolean;
  /** Names the nodes of `only`, for the queue in which requests for them wait. */
  readonly onlyScope?: string;
  /** Whether all nodes of `only` are gone. */
  isStale?(): boolean;
  /** Whether a request that ended with `error` may wait for a node. Absent: yes. */
  mayHope?(error: ApiError): boolean;
}

export interface ColdModels {
  /** The model's state now, as far as this host knows. Undefined: the model is served, or no factory starts it. */
  find(model: string): ColdModel | undefined;
  /** A request is refused because the model is not running. Asks to start the model all the same. */
  ask(model: string): void;
}

export interface ReserveRequest<C> {
  caller: C;
  request: ProxyRequest;
  endpoint: Endpoint;
  parsed: ParsedRequest;
  /** The model that it means, aliases resolved. */
  model: string;
  name: string;
  /** How many of its attempts may have reached an engine, whose node then reports what it used. */
  attempts(): number;
}

/** How a request ended, for its limits. */
export interface RequestEnd {
  /** Attempts that may have reached an engine. */
  attempts: number;
  /** Its last attempt was answered whole and without an error. */
  isComplete: boolean;
}

export interface LimitReservation {
  /** Headers for the response. */
  readonly headers: Readonly<Record<string, string>>;
  /** Other requests wait for its place. */
  readonly concurrent: boolean;
  /** Idempotent. */
  release(end: RequestEnd): void;
}

export interface QueueRequest<C> extends Pick<PlaceRequest, 'name' | 'scope' | 'busy' | 'back'> {
  model: string;
  caller: C;
  route: Route;
  priority: Priority;
  /** The latest end of the wait, by `Clock.steadyNow`. */
  until: number;
  /** Bytes of the body that are kept meanwhile. */
  bytes: number;
  /** The client has the beginning of the response already. */
  begun: boolean;
  /** How long the request has waited before, milliseconds. */
  queuedMs: number;
  streaming: boolean;
  info: Readonly<RequestInfo<C>>;
  client: ProxyRequest['client'];
}

export interface AttemptContext<C> {
  choice: Choice;
  plan: AttemptPlan;
  dispatch: DispatchContext;
  caller: C;
  route: Route;
  request: ProxyRequest;
  /** How long the request has waited since it was admitted, milliseconds. */
  waitedMs: number;
  /** If the stream breaks off, it continues on another node. */
  continues: boolean;
  /** The host may write the rest of the response to the client past the pipeline. */
  offloads: boolean;
}
