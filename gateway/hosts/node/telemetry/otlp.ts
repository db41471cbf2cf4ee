/**
 * Exports traces and logs by OTLP over HTTP with OpenTelemetry's SDK, which also reads its environment variables
 * (OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS, OTEL_BSP_*). This module is loaded only if an endpoint is set. Names follow
 * the GenAI conventions: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
 */
import { type Context, ROOT_CONTEXT, type Span, SpanKind, SpanStatusCode, TraceFlags, trace } from '@opentelemetry/api';
import { SeverityNumber } from '@opentelemetry/api-logs';
import { OTLPLogExporter } from '@opentelemetry/exporter-logs-otlp-http';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BatchLogRecordProcessor, LoggerProvider } from '@opentelemetry/sdk-logs';
import { BasicTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-base';
import type { AttemptUsage, RequestEndEvent, TelemetrySink } from '../../../platform/telemetry-sink.ts';

/** How long a span waits for token counts, which arrive with the node's report shortly after the response. */
const USAGE_WAIT_MS = 3_000;
/** Maximum requests that wait for token counts. Above it the oldest are exported without them. */
const WAITING_MAX = 10_000;

const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

/**
 * Maximum requests that continue after an attempt has ended; their token counts wait for the request's end. Above it
 * the oldest counts are dropped.
 */
const EARLY_MAX = 10_000;
/** Maximum attempts of one request whose token counts are exported. */
const USAGES_MAX = 32;

interface WaitingSpan {
  end: RequestEndEvent;
  usages: AttemptUsage[];
  timer: NodeJS.Timeout;
}

export class Otlp implements TelemetrySink {
  readonly #traces: BasicTracerProvider;
  readonly #logs: LoggerProvider;
  /** Ended requests by internal id, oldest first. */
  readonly #waiting = new Map<string, WaitingSpan>();

  /** Token counts by internal id, oldest first: a node may report before the client has the response's last byte. */
  readonly #early = new Map<string, AttemptUsage[]>();

  constructor(version: string) {
    const resource = resourceFromAttributes({
      'service.name': process.env.OTEL_SERVICE_NAME || 'otela-gateway',
      'service.version': version,
    });
    this.#traces = new BasicTracerProvider({
      resource,
      spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())],
    });
    this.#logs = new LoggerProvider({
      resource,
      processors: [new BatchLogRecordProcessor({ exporter: new OTLPLogExporter() })],
    });
  }

  request(end: RequestEndEvent): void {
    const usages = this.#early.get(end.name) ?? [];
    this.#early.delete(end.name);
    if (end.node === '' || usages.some(({ session }) => session === end.node)) return this.#export(end, usages);
    const timer = setTimeout(() => this.#settle(end.name), USAGE_WAIT_MS).unref();
    this.#waiting.set(end.name, { end, usages, timer });
    const [oldest] = this.#waiting.keys();
    if (this.#waiting.size > WAITING_MAX && oldest !== undefined) this.#settle(oldest);
  }

  usage(usage: AttemptUsage): void {
    const waiting = this.#waiting.get(usage.request);
    if (waiting === undefined) return this.#keepEarly(usage);
    if (waiting.usages.length < USAGES_MAX) waiting.usages.push(usage);
    if (usage.session === waiting.end.node) this.#settle(usage.request);
  }

  #keepEarly(usage: AttemptUsage): void {
    const known = this.#early.get(usage.request) ?? [];
    if (known.length >= USAGES_MAX) return;
    this.#early.set(usage.request, [...known, usage]);
    const [oldest] = this.#early.keys();
    if (this.#early.size > EARLY_MAX && oldest !== undefined) this.#early.delete(oldest);
  }

  event(event: Readonly<Record<string, unknown>>): void {
    const attributes = Object.fromEntries(
      Object.entries(event).flatMap(([name, value]) =>
        typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? [[name, value]] : [],
      ),
    );
    const failed = typeof event.status === 'number' && event.status >= 500;
    this.#logs.getLogger('otela-gateway').emit({
      timestamp: typeof event.at === 'string' ? new Date(event.at) : new Date(),
      eventName: `otela.${String(event.event)}`,
      severityNumber: failed ? SeverityNumber.ERROR : SeverityNumber.INFO,
      severityText: failed ? 'ERROR' : 'INFO',
      body: JSON.stringify(event),
      attributes,
    });
  }

  /** Exports all waiting spans now. */
  async close(): Promise<void> {
    for (const name of [...this.#waiting.keys()]) this.#settle(name);
    await Promise.allSettled([this.#traces.shutdown(), this.#logs.shutdown()]);
  }

  #settle(name: string): void {
    const waiting = this.#waiting.get(name);
    if (waiting === undefined) return;
    clearTimeout(waiting.timer);
    this.#waiting.delete(name);
    this.#export(waiting.end, waiting.usages);
  }

  #export(end: RequestEndEvent, usages: readonly AttemptUsage[]): void {
    const tracer = this.#traces.getTracer('otela-gateway');
    const { at, totalMs, firstMs, operation, model, served, provider, status, error, id, name, endpoint, steps } = end;
    const common = { 'gen_ai.operation.name': operation, 'gen_ai.request.model': model };
    const type = error !== '' ? error : status >= 400 ? String(status) : undefined;
    const server = tracer.startSpan(
      `${operation} ${model}`.trim(),
      {
        kind: SpanKind.SERVER,
        startTime: at,
        attributes: {
          ...common,
          ...(served === '' ? {} : { 'gen_ai.response.model': served }),
          ...(provider === '' ? {} : { 'gen_ai.provider.name': provider }),
          ...(type === undefined ? {} : { 'error.type': type }),
          ...(firstMs === undefined ? {} : { 'gen_ai.response.time_to_first_chunk': firstMs / 1_000 }),
          ...usageOf(usages.find(({ session }) => session === end.node)),
          'http.response.status_code': status,
          'url.path': `/v1/${endpoint}`,
          'otela.request.id': id,
          'otela.usage.id': name,
        },
      },
      parentOf(end.traceparent),
    );
    if (type !== undefined && status >= 500) server.setStatus({ code: SpanStatusCode.ERROR, message: type });
    const inside = trace.setSpan(ROOT_CONTEXT, server);
    let from = at;
    for (const step of steps) {
      const until = at + step.at;
      if (step.kind === 'wait') {
        tracer
          .startSpan(
            'wait for a node',
            { startTime: until - step.ms, attributes: { 'otela.queue.outcome': step.outcome } },
            inside,
          )
          .end(until);
      } else {
        const isAnswer = /^\d+$/.test(step.outcome);
        const isLast = step === steps.at(-1);
        const usage = usages.find(({ session }) => session === step.node);
        const span: Span = tracer.startSpan(
          `${operation} ${served || model}`.trim(),
          {
            kind: SpanKind.CLIENT,
            startTime: from,
            attributes: {
              ...common,
              'otela.node': step.node,
              ...(isLast && provider !== '' ? { 'gen_ai.provider.name': provider } : {}),
              ...(isAnswer ? { 'http.response.status_code': Number(step.outcome) } : { 'error.type': step.outcome }),
              ...usageOf(usage),
            },
          },
          inside,
        );
        if (!isAnswer) span.setStatus({ code: SpanStatusCode.ERROR, message: step.outcome });
        // The attempt that answered lasts until the request's end. A failed attempt ended before.
        span.end(isAnswer && isLast ? at + totalMs : until);
      }
      from = until;
    }
    server.end(at + totalMs);
  }
}

function usageOf(usage: AttemptUsage | undefined): Record<string, number> {
  if (usage === undefined) return {};
  const { prompt, completion, cached, reasoning } = usage;
  return {
    'gen_ai.usage.input_tokens': prompt,
    'gen_ai.usage.output_tokens': completion,
    ...(cached > 0 ? { 'gen_ai.usage.cache_read.input_tokens': cached } : {}),
    ...(reasoning > 0 ? { 'gen_ai.usage.reasoning.output_tokens': reasoning } : {}),
  };
}

/** Returns the context of the client's trace. An invalid `traceparent` starts a new trace. */
function parentOf(traceparent: string | undefined): Context {
  const [, traceId, spanId, flags] = TRACEPARENT.exec(traceparent ?? '') ?? [];
  if (traceId === undefined || spanId === undefined || /^0+$/.test(traceId) || /^0+$/.test(spanId)) return ROOT_CONTEXT;
  const traceFlags = Number.parseInt(flags ?? '00', 16) & TraceFlags.SAMPLED;
  return trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags, isRemote: true });
}
