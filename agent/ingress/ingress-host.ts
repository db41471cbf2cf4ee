// Not by name: a Node that is too old lacks `isUtf8`, and must be able to say so.
import * as buffer from 'node:buffer';
import { randomUUID } from 'node:crypto';
import { startTimer } from '../../node/timers.ts';
import { AttemptError, apiErrorFor } from '../../shared/attempts/attempt-error.ts';
import type { AttemptFailure } from '../../shared/attempts/attempt-request.ts';
import { ByteBudget } from '../../shared/attempts/byte-budget.ts';
import { openFrameFields } from '../../shared/attempts/dispatch-context.ts';
import { attemptBody, type ParsedRequest } from '../../shared/attempts/parsed-request.ts';
import type { ResponseStream } from '../../shared/attempts/started-response.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { BodyMemory } from '../../shared/proxy/body-memory.ts';
import { BODY_STALL_MS } from '../../shared/proxy/body-pace.ts';
import { NULL_RECORDER } from '../../shared/proxy/null-recorder.ts';
import type {
  AttemptContext,
  BodyLimits,
  Host,
  HostClock,
  NodeMemory,
  QueueRequest,
  RequestRecorder,
  Route,
} from '../../shared/proxy/proxy-host.ts';
import type { ProxyRequest } from '../../shared/proxy/proxy-http-types.ts';
import { RETRY_BODY_MIN_BYTES } from '../../shared/proxy/read-body.ts';
import type { TurnResult } from '../../shared/queue/wait-queue.ts';
import { BusyNodes, REFUSED_MS } from '../../shared/routing/busy-nodes.ts';
import type { Candidate } from '../../shared/routing/candidates.ts';
import { CircuitBreakers } from '../../shared/routing/circuit-breakers.ts';
import { RetryBudget } from '../../shared/routing/retry-budget.ts';
import { marksSuspected } from '../../shared/routing/retry-policy.ts';
import type { MeshRequests } from '../mesh/requests/mesh-requests.ts';
import { AvoidedNodes, REFUSING_MS, SILENT_MS, UNREACHABLE_MS } from './avoided-nodes.ts';
import type { IngressCaller, IngressQueues } from './ingress-queues.ts';
import { IngressRequest } from './ingress-request.ts';
import { noTrustedNodeError, type RouteOptions, resolveIngressRoute } from './resolve-route.ts';

/**
 * Maximum bytes of all request bodies that are kept for retries, and of all streams that are kept for resuming. The
 * first MiB of each body and of each stream does not count.
 */
const BODY_BUDGET_BYTES = 48 * 1024 * 1024;
/**
 * Maximum memory for the first MiB of each body that is still arriving; the rest counts in BODY_BUDGET_BYTES. When it
 * is full, the slowest uploads are ended.
 */
const UPLOADS_BYTES = 32 * 1024 * 1024;
const BODY_MAX_BYTES = 32 * 1024 * 1024 + RETRY_BODY_MIN_BYTES;

interface IngressHostOptions extends RouteOptions {
  queues: IngressQueues;
  ask: MeshRequests['ask'];
  pingMs: number;
  bodyStallMs?: number | undefined;
  log(line: string): void;
}

/** The pipeline's host for this agent's ingress. All its clients use the same key; they have no accounts. */
export class IngressHost implements Host<IngressCaller> {
  readonly clock: HostClock = {
    now: () => Date.now(),
    steadyNow: () => performance.now(),
    after: startTimer,
    timer: startTimer,
    random: Math.random,
    newId: () => randomUUID(),
  };
  readonly bodies: BodyLimits;
  readonly memory: NodeMemory;
  readonly pingMs: number;
  readonly #options: IngressHostOptions;
  readonly #avoided = new AvoidedNodes();
  readonly #record: RequestRecorder;

  constructor(options: IngressHostOptions) {
    this.#options = options;
    this.pingMs = options.pingMs;
    const kept = new ByteBudget(BODY_BUDGET_BYTES);
    const memory = new BodyMemory(UPLOADS_BYTES);
    this.bodies = {
      maxBytes: BODY_MAX_BYTES,
      isUtf8: buffer.isUtf8,
      stallMs: options.bodyStallMs ?? BODY_STALL_MS,
      memory,
      kept,
      keptMaxBytes: BODY_BUDGET_BYTES,
      resumable: kept,
    };
    this.memory = {
      breakers: new CircuitBreakers(options.nodes.live),
      retries: new RetryBudget(),
      busy: options.queues.busyNodes,
      refused: new BusyNodes(REFUSED_MS),
      avoided: (now) => this.#avoided.sessions(now),
    };
    this.#record = {
      ...NULL_RECORDER,
      // A response shows that there is a path to the node.
      responseStarted: (_status, { node }) => this.#avoided.delete(node.session),
      refused: (error) => this.#refused(error),
    };
  }

  record(): RequestRecorder {
    return this.#record;
  }

  #refused(error: unknown): void {
    if (error instanceof ApiError || error instanceof AttemptError) return;
    this.#options.log(`ingress: ${error instanceof Error ? error.stack : String(error)}`);
  }

  /** The key was already verified, in handle-ingress-request.ts. */
  identify(request: ProxyRequest): IngressCaller {
    return { address: request instanceof IngressRequest ? request.address : '' };
  }

  authorize(): void {}

  resolve(request: ProxyRequest, _caller: IngressCaller, parsed: ParsedRequest): Route {
    return resolveIngressRoute(request, parsed, this.#options);
  }

  reserve(): undefined {}

  isQueued(model: string, scope: () => string): boolean {
    return this.#options.queues.isQueued(model, scope);
  }

  positionInQueue(model: string, name: string): number | undefined {
    return this.#options.queues.position(model, name);
  }

  waitForTurn(queued: QueueRequest<IngressCaller>): Promise<TurnResult> {
    return this.#options.queues.waitForTurn(queued);
  }

  /** Does nothing, because the index of nodes changes with the registry. */
  refresh(): void {}

  open({ choice, plan, dispatch, request }: AttemptContext<IngressCaller>): Promise<ResponseStream> {
    const opening = openFrameFields(dispatch, plan.number, plan.acceptMs, choice.model);
    const { movable, moved } = plan;
    const open = { ...opening, movable, moved, model: choice.model };
    const attempt = this.#options.ask(choice.node.session, open, attemptBody(dispatch.parsed));
    request.client.on(() => attempt.cancel());
    return attempt.open();
  }

  onAttemptFailed({ session }: Candidate, code: AttemptFailure): void {
    const now = this.clock.now();
    if (code === 'refused') this.#avoided.add(session, now + REFUSING_MS);
    else if (code === 'unreachable') this.#avoided.add(session, now + UNREACHABLE_MS);
    else if (marksSuspected(code)) this.#avoided.add(session, now + SILENT_MS);
  }

  /** A request of this ingress has ended at that node, so a waiting request may take its place. */
  onAttemptEnded(session: string): void {
    this.#options.queues.ended(session);
  }

  refusal(route: Route, failure: AttemptError | undefined): ApiError {
    if (failure === undefined) return noTrustedNodeError(route);
    if (failure.code !== 'refused') return apiErrorFor(failure);
    // The node's message helps the client: it names the agent and the flag that refuses the request.
    const message = `The node that serves this model refused the request: ${failure.message}.`;
    return new ApiError('no_capacity', message, { cause: failure });
  }
}
