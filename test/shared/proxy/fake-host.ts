/** A host with a clock, nodes and engines that the test controls. */

import { isUtf8 } from 'node:buffer';
import { AttemptError, apiErrorFor } from '../../../shared/attempts/attempt-error.ts';
import type { AttemptFailure } from '../../../shared/attempts/attempt-request.ts';
import { ByteBudget } from '../../../shared/attempts/byte-budget.ts';
import { InBandErrorDetector } from '../../../shared/attempts/in-band-error-detector.ts';
import { isRepeatable, type ParsedRequest } from '../../../shared/attempts/parsed-request.ts';
import type { ResponseStream } from '../../../shared/attempts/started-response.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { findEndpoint } from '../../../shared/openai/endpoints.ts';
import { StageTimer } from '../../../shared/openai/request-stage-timer.ts';
import { BodyMemory } from '../../../shared/proxy/body-memory.ts';
import { ClientDisconnect } from '../../../shared/proxy/client-disconnect.ts';
import { routedRequest } from '../../../shared/proxy/policy-input.ts';
import type {
  AttemptContext,
  BodyLimits,
  HeldReservation,
  Host,
  HostClock,
  RequestRecorder,
  ReserveRequest,
  Route,
} from '../../../shared/proxy/proxy-host.ts';
import type { BodyReader, ProxyRequest, ProxyResponse } from '../../../shared/proxy/proxy-http-types.ts';
import { readBody } from '../../../shared/proxy/read-body.ts';
import type { RequestContext } from '../../../shared/proxy/request-context.ts';
import { QueueEntry } from '../../../shared/queue/queue-entry.ts';
import type { TurnResult } from '../../../shared/queue/wait-queue.ts';
import { BusyNodes, REFUSED_MS } from '../../../shared/routing/busy-nodes.ts';
import { NO_REQUIREMENTS } from '../../../shared/routing/candidates.ts';
import { CircuitBreakers } from '../../../shared/routing/circuit-breakers.ts';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import { leastLoadPolicy } from '../../../shared/routing/policies/least-load.ts';
import { RetryBudget } from '../../../shared/routing/retry-budget.ts';
import { decideTrust } from '../../../shared/routing/trusted-providers.ts';

/** A node's behavior in an attempt: pieces of a stream, which may end with a failure, or only that failure. */
export type Script = AttemptFailure | (string | AttemptError)[];

const NOW = Date.parse('2026-01-01T00:00:05.000Z');

/** Time moves only by `advance`. */
export class FakeClock implements HostClock {
  #now = NOW;
  #ids = 0;
  readonly #timers = new Set<{ at: number; ring: () => void }>();

  now = (): number => this.#now;
  steadyNow = (): number => this.#now;
  random = (): number => 0;
  newId = (): string => `id-${++this.#ids}`;
  /** How many times longer a wait for another process takes: see TurnClock. */
  slowdown = 1;
  after = (ms: number, ring: () => void): (() => void) => this.timer(ms * this.slowdown, ring);
  timer = (ms: number, ring: () => void): (() => void) => {
    const timer = { at: this.#now + ms, ring };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  };

  async advance(ms: number): Promise<void> {
    await settle();
    this.#now += ms;
    for (const timer of [...this.#timers]) if (timer.at <= this.#now && this.#timers.delete(timer)) timer.ring();
    await settle();
  }
}

/** Lets every promise continue that can. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 100; turn++) await Promise.resolve();
}

export class FakeHost implements Host<string> {
  readonly clock = new FakeClock();
  readonly pingMs = 15_000;
  readonly bodies: BodyLimits = {
    maxBytes: 4096,
    isUtf8,
    stallMs: 30_000,
    memory: new BodyMemory(1024 * 1024 * 8),
    kept: new ByteBudget(1024 * 1024),
    keptMaxBytes: 1024 * 1024,
    resumable: new ByteBudget(1024 * 1024),
  };
  readonly nodes = new NodeIndex();
  readonly memory = {
    breakers: new CircuitBreakers(this.nodes.live),
    retries: new RetryBudget(),
    busy: new BusyNodes(),
    refused: new BusyNodes(REFUSED_MS),
  };
  /** By session. */
  readonly scripts = new Map<string, Script>();
  /** What happened, in order. */
  readonly log: string[] = [];
  readonly turns: TurnResult[] = [];
  waitMs = 0;
  reservation: HeldReservation | undefined;

  add(entry: RegistryEntry, script: Script): void {
    this.nodes.put(entry);
    this.scripts.set(entry.session, script);
  }

  record(): RequestRecorder {
    const said = (word: string) => this.log.push(word);
    return {
      queueEntered: () => (outcome) => said(`waited: ${outcome}`),
      attempt: (outcome) => said(`attempt: ${outcome}`),
      responseStarted: (status, { node }) => said(`answered: ${status} by ${node.session}`),
      refused: (error) => said(`refused: ${error instanceof ApiError ? error.code : error}`),
      refusedLate: ({ code }) => said(`refused late: ${code}`),
      responseBroke: (reason, code) => said(`broke: ${reason}, ${code}`),
      clientDisconnected: () => said('left'),
      responseEnded: () => said('over'),
    };
  }

  identify(request: ProxyRequest): string {
    const key = request.header('authorization');
    if (typeof key !== 'string') throw new ApiError('invalid_api_key', 'No API key was given.');
    return key;
  }

  authorize(): void {}

  resolve(request: ProxyRequest, _caller: string, parsed: ParsedRequest): Route {
    return {
      request: routedRequest((name) => request.header(name), parsed, parsed.model, ''),
      fallbacks: [],
      demand: NO_REQUIREMENTS,
      policyFor: () => leastLoadPolicy,
      nodes: this.nodes,
      trust: decideTrust({ own: 'local', lists: [], defaults: 'admitted', deleted: new Set(), policies: [] }),
      requireTrust: () => {},
      expects: (model) => model === 'expected',
      retriesMax: 3,
      timeoutsFor: () => undefined,
      receiptFor: (model) => model,
      unpaidReceipt: () => '',
      waitMs: this.waitMs,
      restartGraceMs: 600_000,
      resumes: false,
    };
  }

  /** Attempts of the last request that may have reached an engine. */
  engineAttempts = () => 0;

  reserve({ attempts }: Pick<ReserveRequest<string>, 'attempts'>): HeldReservation | undefined {
    this.engineAttempts = attempts;
    return this.reservation;
  }

  isQueued(): boolean {
    return false;
  }

  positionInQueue(): number | undefined | Promise<number | undefined> {
    return undefined;
  }

  waitForTurn(): Promise<TurnResult> {
    return Promise.resolve(this.turns.shift() ?? { kind: 'late' });
  }

  refresh(): void {
    this.log.push('refreshed');
  }

  open({ choice }: AttemptContext<string>): Promise<ResponseStream> {
    const script = this.scripts.get(choice.node.session) ?? 'failed';
    if (typeof script === 'string') return Promise.reject(new AttemptError(script, 'as the test has it'));
    return Promise.resolve(streamOf(script, () => this.log.push('cancelled')));
  }

  onAttemptFailed(): void {}
  onAttemptEnded(session: string, ending: string): void {
    this.log.push(`ended: ${session}, ${ending}`);
  }

  refusal(_route: Route, failure: AttemptError | undefined): ApiError {
    return failure === undefined ? new ApiError('no_capacity', 'No node.') : apiErrorFor(failure);
  }
}

function streamOf(script: (string | AttemptError)[], cancelled: () => void): ResponseStream {
  const rest = [...script];
  return {
    status: 200,
    head: { headers: [['content-type', 'text/event-stream']], forwardMs: 0, engineMs: 0 },
    read: async () => {
      const next = rest.shift();
      if (next instanceof AttemptError) throw next;
      return next === undefined ? undefined : new TextEncoder().encode(next);
    },
    cancel: cancelled,
  };
}

export interface RequestOptions {
  method?: string;
  path?: string;
  headers?: Record<string, string>;
  whole?: string;
  /** Instead of `whole`: pieces of the body; undefined stalls. */
  pieces?: (string | undefined)[];
}

export function requestOf({
  method = 'POST',
  path = '/v1/chat/completions',
  headers,
  whole,
  pieces,
}: RequestOptions): ProxyRequest {
  const all: Record<string, string> = { authorization: 'key', ...headers };
  const rest = [...(pieces ?? [])];
  let locked = false;
  const reader = (): BodyReader | undefined => {
    if (pieces === undefined || locked) return undefined;
    locked = true;
    return {
      read: () => {
        if (rest.length === 0) return Promise.resolve(undefined);
        const next = rest.shift();
        return next === undefined ? new Promise(() => {}) : Promise.resolve(new TextEncoder().encode(next));
      },
      cancel: async () => {},
      release: () => {
        locked = false;
      },
    };
  };
  const bytes = whole === undefined ? undefined : new TextEncoder().encode(whole);
  const client = new ClientDisconnect();
  return { method, path, header: (name) => all[name], body: { whole: bytes, reader }, client };
}

export interface ContextOptions extends RequestOptions {
  /** Overrides of the host's route. */
  route?: Partial<Route>;
}

/** A request after all its checks, for a test of one step. `whole` is its body, by default a streaming request. */
export async function contextOf(host: FakeHost, options: ContextOptions = {}): Promise<RequestContext<string>> {
  const body = options.pieces === undefined ? { whole: JSON.stringify({ model: 'm', stream: true }) } : {};
  const request = requestOf({ ...body, ...options });
  const endpoint = findEndpoint(request.method, request.path);
  if (endpoint === undefined || 'methodNotAllowed' in endpoint) throw new Error('there is no such endpoint');
  const parsed = await readBody(request, endpoint, host);
  const route = { ...host.resolve(request, 'key', parsed), ...options.route };
  const info = { clientRequestId: 'req', name: 'req', startedAt: host.clock.now() };
  return {
    host,
    request,
    caller: 'key',
    info,
    record: host.record(),
    route,
    entry: new QueueEntry({
      busyNodes: host.memory.busy,
      queues: route.waitMs > 0,
      isWorthWaiting: () => true,
      repeatable: () => isRepeatable(parsed),
      retriesMax: route.retriesMax,
    }),
    reservation: host.reservation,
    engineAttempts: { count: 0 },
    priority: 'interactive',
    continues: false,
    admittedAt: host.clock.steadyNow(),
    waitMs: route.waitMs,
    timing: new StageTimer(host.clock.now()),
    name: 'req',
    endpoint,
    inBand: new InBandErrorDetector(endpoint, false),
    parsed,
    headers: [],
    receipt: 'receipt',
    timeouts: undefined,
  };
}

/** The body as the client gets it; it ends with `!` if it was cut off. */
export async function textOf({ body }: ProxyResponse): Promise<string> {
  const decoder = new TextDecoder();
  if (body === null || typeof body === 'string') return body ?? '';
  if (body instanceof Uint8Array) return decoder.decode(body);
  if (typeof body !== 'function') return new Response(body).text();
  let text = '';
  await body({
    write: (bytes) => {
      text += decoder.decode(bytes);
    },
    end: () => {},
    abort: () => {
      text += '!';
    },
  });
  return text;
}
