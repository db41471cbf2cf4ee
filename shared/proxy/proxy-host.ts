/** What the pipeline needs from its host program: a gateway on Workers, a gateway on Node, or an agent's ingress. */

import type { AttemptError } from '../attempts/attempt-error.ts';
import type { AttemptFailure } from '../attempts/attempt-request.ts';
import type { ByteBudget } from '../attempts/byte-budget.ts';
import type { AttemptPlan } from '../attempts/dispatch.ts';
import type { DispatchContext } from '../attempts/dispatch-context.ts';
import type { ParsedRequest } from '../attempts/parsed-request.ts';
import type { ResponseStream } from '../attempts/started-response.ts';
import type { ApiError } from '../openai/api-errors.ts';
import type { Endpoint } from '../openai/endpoints.ts';
import type { Utf8Check } from '../openai/scan-json-body.ts';
import type { TurnRequest, TurnResult } from '../queue/wait-queue.ts';
import type { BusyNodes } from '../routing/busy-nodes.ts';
import type { Candidate } from '../routing/candidates.ts';
import type { NodeChoice, RoutingQuery } from '../routing/choose-node.ts';
import type { CircuitBreakers } from '../routing/circuit-breakers.ts';
import type { Priority } from '../routing/fair-queue.ts';
import type { NodeIndex } from '../routing/node-index.ts';
import type { BreakerState } from '../routing/node-load.ts';
import type { RetryBudget } from '../routing/retry-budget.ts';
import type { RequestOutcome } from '../routing/retry-policy.ts';
import type { Trust } from '../routing/trusted-providers.ts';
import type { StartTimer } from '../timing/start-timer.ts';
import type { BodyMemory } from './body-memory.ts';
import type { ColdModels } from './cold-model.ts';
import type { ProxyRequest } from './proxy-http-types.ts';
import type { StoredResponses } from './stored-response-index.ts';

export interface Host<C = unknown> {
  readonly clock: HostClock;
  readonly bodies: BodyLimits;
  readonly memory: NodeMemory;
  /**
   * If a stream has waited this many milliseconds for its node, its response begins. From then on it gets a comment at
   * this interval.
   */
  readonly pingMs: number;
  /** Where engines stored responses. Absent: this host does not know. */
  readonly responses?: StoredResponses<C>;
  /** Begins the record of one request. */
  record(request: ProxyRequest, info: Readonly<RequestInfo<C>>): RequestRecorder;
  /** Identifies the caller. @throws ApiError 401, 403, 503 */
  identify(request: ProxyRequest, endpoint: Endpoint): C | Promise<C>;
  /** Checks that this caller may use this endpoint. @throws ApiError 400, 403 */
  authorize(request: ProxyRequest, caller: C, endpoint: Endpoint): void;
  /** Returns the requested model, and the nodes that may serve it. @throws ApiError 400, 403 */
  resolve(request: ProxyRequest, caller: C, parsed: ParsedRequest): Route | Promise<Route>;
  /**
   * Reserves the request's share of its limits. Undefined if the request counts against no limit. @throws ApiError 429,
   * 503
   */
  reserve(reserved: ReserveRequest<C>): HeldReservation | undefined | Promise<HeldReservation>;
  /** True if another request already waits for the same nodes. `scope` is called only if any request waits. */
  isQueued(model: string, scope: () => string): boolean;
  /** Position of a waiting request, by its name; 1 is next. Undefined if it does not wait. May reject. */
  positionInQueue(model: string, name: string): number | undefined | Promise<number | undefined>;
  /**
   * Waits for one turn. Resolves with the reason why the wait ended. @throws AttemptError `cancelled` if the client
   * disconnected
   */
  waitForTurn(queued: QueueRequest<C>): Promise<TurnResult>;
  /** Updates the route's nodes and cold models after a wait. */
  refresh(models: readonly string[]): void | Promise<void>;
  /** Starts one attempt at one node. @throws AttemptError if the engine sent no response head */
  open(attempt: AttemptContext<C>): Promise<ResponseStream>;
  /** Called if an attempt failed before the engine's whole answer had arrived. */
  onAttemptFailed(node: Candidate, code: AttemptFailure): void;
  /** Called when an attempt ended. @param breaker the state of the node's breaker, if the attempt changed it */
  onAttemptEnded(session: string, ending: RequestOutcome, breaker: BreakerState | undefined): void;
  /** The client's error after the last `failure`. If `failure` is undefined, no node could be chosen. */
  refusal(route: Route, failure: AttemptError | undefined): ApiError;
}

/** Time and randomness, which the pipeline gets only from its host. */
export interface HostClock {
  /** Milliseconds since 1970. */
  now(): number;
  /** Milliseconds of a monotonic clock, for deadlines. */
  steadyNow(): number;
  /** A timer for waiting for other processes. It may fire late on a host that gets too little processor time. */
  readonly after: StartTimer;
  /** A timer that follows the real clock, for data that must reach a client in time. */
  readonly timer: StartTimer;
  /** A random number from 0 to 1. */
  random(): number;
  /** A random name for a request. */
  newId(): string;
}

/** Limits of request bodies, in bytes and milliseconds. */
export interface BodyLimits {
  /** Maximum length of a body that is buffered. */
  readonly maxBytes: number;
  /** The host's check for UTF-8. It must not make a text of each body. */
  readonly isUtf8: Utf8Check;
  /** A body without data for this long is dropped. */
  readonly stallMs: number;
  /** Memory for bodies that are being received. */
  readonly memory: BodyMemory;
  /** Memory for bodies that stay buffered for a retry, above the first MiB of each. */
  readonly kept: ByteBudget;
  readonly keptMaxBytes: number;
  /** Memory for the requests and texts of streams that may have to continue on another node. */
  readonly resumable: ByteBudget;
}

/** What this host has learned about nodes from its requests to them. */
export interface NodeMemory {
  readonly breakers: CircuitBreakers;
  readonly retries: RetryBudget;
  readonly busy: BusyNodes;
  /** Nodes with engines that refused a request; see REFUSED_MS. */
  readonly refused: BusyNodes;
  /** Sessions that are avoided while others are available, in addition to those with an open breaker. */
  avoided?(now: number): readonly string[];
}

/** What is known about a request so far. The pipeline sets the fields, and the recorder reads them. */
export interface RequestInfo<C = unknown> {
  clientRequestId: string;
  /** Milliseconds since the epoch. */
  startedAt: number;
  /**
   * The internal name of the request, from which its attempts and records are named. It is random and never the
   * client's id, because two clients may send the same id.
   */
  name: string;
  /** Id in the endpoint table. */
  endpoint?: number;
  caller?: C;
  model?: string;
  /** True if a node serves the model, or served it recently. */
  known?: boolean;
  streamed?: boolean;
}

/** An attempt that got an engine's response head. */
export interface AttemptTimings {
  region: string | undefined;
  /** The model that was requested at the node. */
  model: string;
  /** The node's tier, if the request's class preferred it to another tier. */
  tier?: string;
  /** Milliseconds from the opening of the attempt to its acknowledgment, which is about one round trip. */
  forwardMs: number;
  /** Milliseconds from the acknowledgment to the engine's response head. */
  engineMs: number;
}

/** Receives each step of a request as it happens. */
export interface RequestRecorder {
  /** The request waits for a node. Call the returned function when the wait ends. */
  queueEntered(): (outcome: 'turn' | 'full' | 'late') => void;
  /**
   * An attempt at this session's node got a response head with this status, or failed with this code.
   * @param reached the node's region and model, and the times of the path and the engine; absent without a response
   * head
   */
  attempt(outcome: number | AttemptFailure, session: string, reached?: AttemptTimings): void;
  /** The response is being sent. */
  responseStarted(status: number, choice: Pick<NodeChoice, 'node' | 'model'>): void;
  /** The request was refused before anything was sent. */
  refused(error: unknown): void;
  /** The request was refused in-band, after a 200 was sent. */
  refusedLate(error: ApiError, cause: unknown): void;
  /** The response broke off. @param code the error code that the client received */
  responseBroke(reason: string, code: string): void;
  /** The client disconnected. Idempotent. */
  clientDisconnected(): void;
  /** The last byte was sent. Idempotent. */
  responseEnded(): void;
}

/** How one request is routed. */
export interface Route extends Pick<RoutingQuery, 'request' | 'fallbacks' | 'demand' | 'policyFor' | 'only'> {
  readonly nodes: NodeIndex;
  readonly trust: Trust;
  /**
   * Checks that at least one provider is trusted.
   * @throws ApiError 400 for a provider that this host does not know; 403 if no provider is trusted; 503 while the
   * trusted providers are unknown
   */
  requireTrust(): void;
  /**
   * True if the operator expects nodes that serve the model. Such a model is known although no node has served it yet.
   */
  expects(model: string): boolean;
  /** Headers of every response on this route; absent: none. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Maximum number of retries after the first attempt, and the share of all requests that may be retried. */
  readonly retriesMax: number;
  readonly retryShare?: number;
  timeoutsFor(model: string): DispatchContext['timeouts'];
  receiptFor(model: string): string;
  /** The receipt for a request that the host itself makes, such as a tokenization. No account pays for it. */
  unpaidReceipt(model: string): string;
  /** Maximum wait for a node in milliseconds; 0: the request does not wait. */
  readonly waitMs: number;
  /**
   * Time in milliseconds in which a model's last node may come back. If it left longer ago, requests do not wait for
   * the model.
   */
  readonly restartGraceMs: number;
  /**
   * Maximum wait for a model that is being started, in milliseconds. Absent: neither the request nor its key sets it.
   */
  readonly startWaitMs?: number | undefined;
  /** Models that start on demand. Absent: an allowed node serves one of the models, or this host starts none. */
  readonly cold?: ColdModels | undefined;
  /** Default for whether a broken stream continues on another node. The request may override it. */
  readonly resumes: boolean;
  /** A name for the nodes that `only` accepts. Requests for these nodes wait in one queue. */
  readonly onlyScope?: string;
  /** The client's error if all nodes that `only` accepts are gone. */
  stale?(): ApiError | undefined;
  /** True if a request that ended with `error` may wait for a node. If absent, every request may. */
  mayWait?(error: ApiError): boolean;
}

export interface ReserveRequest<C> {
  caller: C;
  request: ProxyRequest;
  endpoint: Endpoint;
  parsed: ParsedRequest;
  /** The requested model, with aliases resolved. */
  model: string;
  name: string;
  /**
   * Number of the request's attempts that may have reached an engine. The nodes of these attempts report usage later.
   */
  attempts(): number;
}

/** How a request ended, for settling its limits. */
export interface RequestResult {
  /** Number of attempts that may have reached an engine. */
  attempts: number;
  /** True if the last attempt's response was complete and without error. */
  isComplete: boolean;
}

export interface HeldReservation {
  /** Headers for the response. */
  readonly headers: Readonly<Record<string, string>>;
  /** True if the request counts against a limit on concurrent requests, so that other requests may wait for its end. */
  readonly concurrent: boolean;
  /** Settles the reservation. Idempotent. */
  release(end: RequestResult): void;
}

export interface QueueRequest<C> extends Pick<TurnRequest, 'name' | 'scope' | 'busy' | 'back'> {
  model: string;
  caller: C;
  route: Route;
  priority: Priority;
  /** End of the wait, by `HostClock.steadyNow`. */
  until: number;
  /** Bytes of the body that stay buffered during the wait. */
  bytes: number;
  /** True if the client has received the beginning of the response. */
  begun: boolean;
  /** How long the request has waited so far, in milliseconds. */
  queuedMs: number;
  streaming: boolean;
  info: Readonly<RequestInfo<C>>;
  client: ProxyRequest['client'];
}

export interface AttemptContext<C> {
  choice: NodeChoice;
  plan: AttemptPlan;
  dispatch: DispatchContext;
  caller: C;
  route: Route;
  request: ProxyRequest;
  /** How long the request has waited since it was admitted, in milliseconds. */
  waitedMs: number;
  /** True if the stream continues on another node when it breaks. */
  continues: boolean;
  /** True if the host may write the rest of the response directly to the client's socket. */
  offloads: boolean;
}
