/**
 * The record of one request while it runs, for the counters, the timeline and the log line. It never contains a prompt,
 * a key's secret or a response.
 */

import type { MetricStore } from '../../shared/metrics/metric-store.ts';
import { ApiError, toApiError } from '../../shared/openai/api-errors.ts';
import { endpointById } from '../../shared/openai/endpoints.ts';
import { readTraceId } from '../../shared/openai/traceparent.ts';
import { type ClientDisconnect, LEFT_ERROR, LEFT_STATUS } from '../../shared/proxy/client-disconnect.ts';
import type { AttemptTimings, RequestInfo, RequestRecorder } from '../../shared/proxy/proxy-host.ts';
import type { ProxyRequest } from '../../shared/proxy/proxy-http-types.ts';
import type { Account } from '../accounts/account.ts';
import type { Env } from '../env.ts';
import { storageHealth } from '../platform/storage/storage-health.ts';
import { telemetrySink } from '../platform/telemetry-sink.ts';
import { logLine } from './log-line.ts';
import {
  ATTEMPTS,
  BROKEN_STREAMS,
  CLIENTS_LEFT,
  CONTINUED_STREAMS,
  QUEUE_WAIT,
  QUEUE_WAITING,
  RATE_LIMITED,
  REGION_ROUND_TRIP,
  REGION_SERVICE,
  REQUESTS,
  REQUESTS_IN_FLIGHT,
  RETRIES,
  SERVER_DURATION,
  STORAGE_FAILING,
  SUSPICIONS,
  USAGE_HELD,
} from './metric-families.ts';
import { endpointLabel, operationLabel } from './metric-labels.ts';
import { MetricsReporter } from './metrics-reporter.ts';
import { needsTimeline, type RequestTimeline, TIMELINE_STEPS_MAX, type TimelineStep } from './request-timeline.ts';

interface Context {
  waitUntil(work: Promise<unknown>): void;
}

/** The reporter of this isolate. */
export const metricsReporter = new MetricsReporter((now) => {
  now.set(REQUESTS_IN_FLIGHT, [], inFlight);
  noteStorage(now);
  for (const [model, waiting] of queued) now.set(QUEUE_WAITING, [model], waiting);
});
/** Adds gauges about the storage, as this isolate knows it. */
export function noteStorage(now: MetricStore): void {
  now.set(STORAGE_FAILING, [], storageHealth.isFailing(Date.now()) ? 1 : 0);
  now.set(USAGE_HELD, [], storageHealth.held);
}

let inFlight = 0;
const queued = new Map<string, number>();

/** What is known of a request so far. */
export type LoggedRequest = RequestInfo<{ readonly account: Account; readonly untracked: boolean }>;

export class RequestLog implements RequestRecorder {
  readonly seen: Readonly<LoggedRequest>;
  readonly traceId: string | undefined;
  readonly #traceparent: string | undefined;
  readonly #env: Env;
  readonly #ctx: Context;
  readonly #client: ClientDisconnect;
  node = '';
  /** The model that answered, which may differ from the requested one because of an alias or a fallback. */
  served = '';
  provider = '';
  attempts = 0;
  status = 0;
  /** Code of the gateway's error, whether it was sent before or inside the response. */
  error = '';
  /**
   * The error's class and its first stack frames, if the gateway itself failed. Messages are omitted, because they may
   * contain part of a prompt.
   */
  failedAt: string | undefined;
  queuedMs = 0;
  readonly #steps: TimelineStep[] = [];
  /** Outcome of the last attempt: a failure code, or the class of its HTTP status, such as `5xx`. */
  #failed = '';
  /** Timings of the last attempt that reached an engine. */
  #reached: AttemptTimings | undefined;
  #firstAt = 0;
  #endWait: ((outcome: 'turn' | 'full' | 'late' | 'left') => void) | undefined;
  #finished = false;

  constructor(
    seen: Readonly<LoggedRequest>,
    request: Pick<ProxyRequest, 'header'>,
    client: ClientDisconnect,
    { env, ctx }: { env: Env; ctx: Context },
  ) {
    this.seen = seen;
    this.#env = env;
    this.#ctx = ctx;
    this.#client = client;
    const traceparent = request.header('traceparent') ?? undefined;
    this.#traceparent = telemetrySink.sink && traceparent;
    this.traceId = traceparent && readTraceId(traceparent);
    inFlight++;
    // After a disconnection the runtime may stop the request's work at any point, so this listener records the
    // disconnection.
    client.on(() => this.clientDisconnected());
  }

  /** Records an attempt. `outcome`: the status of the engine's response, or the code of a failure in transit. */
  attempt(outcome: number | string, node = '', reached?: AttemptTimings): void {
    const tier = reached?.tier === undefined ? {} : { tier: reached.tier };
    this.#step({ at: this.#age, kind: 'attempt', node, outcome: String(outcome), ...tier });
    if (this.attempts++ > 0) metricsReporter.counts.count(RETRIES, [this.#failed]);
    this.#failed = typeof outcome === 'number' ? `${Math.floor(outcome / 100)}xx` : outcome;
    metricsReporter.counts.count(ATTEMPTS, [this.#model, this.#failed]);
    if (this.#firstAt !== 0) metricsReporter.counts.count(CONTINUED_STREAMS, [this.#failed]);
    this.#reached = reached;
    if (reached !== undefined)
      metricsReporter.counts.observe(REGION_ROUND_TRIP, [reached.region ?? ''], reached.forwardMs / 1000);
  }

  suspected(): void {
    metricsReporter.counts.count(SUSPICIONS, []);
  }

  /**
   * Records that the request waits for a free node. Returns a function to call with the outcome when the wait ends. A
   * disconnection of the client ends the wait too.
   */
  queueEntered(): (outcome: 'turn' | 'full' | 'late' | 'left') => void {
    const from = Date.now();
    this.#queued(1);
    const end = (outcome: 'turn' | 'full' | 'late' | 'left') => {
      if (this.#endWait !== end) return; // the client disconnected first
      this.#endWait = undefined;
      this.#queued(-1);
      this.queuedMs += Date.now() - from;
      this.#step({ at: this.#age, kind: 'wait', ms: Date.now() - from, outcome });
      metricsReporter.counts.observe(QUEUE_WAIT, [this.#model, outcome], (Date.now() - from) / 1000);
    };
    this.#endWait = end;
    return end;
  }

  #queued(change: 1 | -1): void {
    const waiting = (queued.get(this.#model) ?? 0) + change;
    if (waiting > 0) queued.set(this.#model, waiting);
    else queued.delete(this.#model);
  }

  /** Records that the engine's response is being sent from now on. */
  responseStarted(
    status: number,
    { node, model }: { node: { session: string; provider: string }; model: string },
  ): void {
    this.#firstAt = Date.now();
    this.status = status;
    this.node = node.session;
    this.provider = node.provider;
    this.served = model;
  }

  /** Records that the request was refused, or failed before anything was sent. */
  refused(error: unknown): void {
    if (this.#client.disconnected) return this.clientDisconnected(); // the request failed because the client disconnected
    const { code, status } = toApiError(error);
    if (!(error instanceof ApiError)) this.failedAt = framesOf(error);
    this.status = status;
    this.error = code;
    if (status === 429) metricsReporter.counts.count(RATE_LIMITED, [code]);
    this.responseEnded();
  }

  /** Records that a stream was opened (with status 200) before an engine answered, and that then no engine answered. */
  refusedLate({ code }: ApiError, _cause: unknown): void {
    this.status = 200;
    this.responseBroke('no_engine', code);
  }

  /**
   * Records that the response was cut after its head. `code`: the code of the error that the client gets inside the
   * response.
   */
  responseBroke(reason: string, code: string): void {
    if (this.#finished) return;
    this.error = code;
    metricsReporter.counts.count(BROKEN_STREAMS, [reason]);
    this.responseEnded();
  }

  clientDisconnected(): void {
    if (this.#finished) return;
    this.error = LEFT_ERROR;
    if (this.status === 0) this.status = LEFT_STATUS;
    metricsReporter.counts.count(CLIENTS_LEFT, []);
    this.responseEnded();
  }

  /** Records that the last byte was sent, or that none will be. Idempotent. */
  responseEnded(): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#client.over();
    this.#endWait?.('left');
    const now = Date.now();
    const { status, error, seen } = this;
    const endpoint = endpointById(seen.endpoint ?? 0);
    inFlight--;
    metricsReporter.counts.count(REQUESTS, [endpointLabel(endpoint), String(status), error]);
    if (this.#model !== '') {
      const type = error === '' && status >= 400 ? String(status) : error;
      const labels = [operationLabel(endpoint), this.provider, this.#model, type];
      metricsReporter.counts.observe(SERVER_DURATION, labels, (now - seen.startedAt) / 1000);
    }
    // Refused requests and broken responses are not measured, because they take almost no time: a planner would send
    // all requests to a region that fails.
    if (this.#reached !== undefined && this.#firstAt !== 0 && status < 400 && error === '') {
      const { region = '', model, engineMs } = this.#reached;
      metricsReporter.counts.observe(REGION_SERVICE, [region, model], (engineMs + now - this.#firstAt) / 1000);
    }
    const { clientRequestId: id, name } = seen;
    if (needsTimeline({ id, name, status, error, steps: this.#steps })) metricsReporter.report(this.#timeline(now));
    telemetrySink.sink?.request({
      ...this.#timeline(now),
      operation: operationLabel(endpoint),
      traceparent: this.#traceparent,
    });
    if (error !== LEFT_ERROR) metricsReporter.touch(this.#env, this.#ctx, now);
    logLine(this.#env, this, now - seen.startedAt, this.#firstAt === 0 ? undefined : this.#firstAt - seen.startedAt);
  }

  #step(step: TimelineStep): void {
    if (this.#steps.length < TIMELINE_STEPS_MAX) this.#steps.push(step);
  }

  /** Milliseconds since the request arrived. */
  get #age(): number {
    return Date.now() - this.seen.startedAt;
  }

  #timeline(now: number): RequestTimeline {
    const { clientRequestId: requestId, name, startedAt, model = '', caller, endpoint = 0 } = this.seen;
    return {
      id: requestId,
      name,
      at: startedAt,
      endpoint: endpointLabel(endpointById(endpoint)),
      model: model.slice(0, MODEL_MAX),
      served: this.served,
      key: caller?.account.keyId ?? '',
      user: caller?.account.userId,
      node: this.node,
      provider: this.provider,
      status: this.status,
      error: this.error,
      failedAt: this.failedAt,
      firstMs: this.#firstAt === 0 ? undefined : this.#firstAt - startedAt,
      totalMs: now - startedAt,
      steps: this.#steps,
    };
  }

  get #model(): string {
    if (this.served !== '') return this.served;
    // Only a model that nodes serve, or recently served, is a label, because a client chooses the name.
    return this.seen.known === true ? (this.seen.model ?? '') : '';
  }
}

const FRAMES = 4;
/** Maximum characters of a model's name, because a client chooses the name. */
const MODEL_MAX = 128;

function framesOf(error: unknown): string {
  if (!(error instanceof Error)) return typeof error;
  const frames = (error.stack ?? '').split('\n').filter((line) => /^\s+at /.test(line));
  return [error.constructor.name, ...frames.slice(0, FRAMES).map((frame) => frame.trim())].join(' ');
}
