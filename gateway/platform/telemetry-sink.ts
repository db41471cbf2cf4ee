/**
 * What a host exports about requests and events, if its operator enables that. Without a sink nothing is computed for
 * it.
 */

/** A finished request: no text, no key's secret, no address. */
export interface RequestEndEvent {
  /** The id in its usage records. */
  name: string;
  /** The id that the client knows. */
  id: string;
  /** Milliseconds since 1970. */
  at: number;
  totalMs: number;
  firstMs?: number | undefined;
  /** OpenTelemetry's name: `chat`, `text_completion`, `embeddings`, … */
  operation: string;
  endpoint: string;
  model: string;
  served: string;
  node: string;
  provider: string;
  status: number;
  error: string;
  /** `at`: when the step ended, in milliseconds since the request arrived. */
  steps: readonly (
    | { at: number; kind: 'wait'; ms: number; outcome: string }
    | { at: number; kind: 'attempt'; node: string; outcome: string }
  )[];
  /** The client's trace context. This request is a part of the trace. */
  traceparent: string | undefined;
}

/** The usage of one attempt, reported shortly after its request ended. */
export interface AttemptUsage {
  /** `RequestEndEvent.name`. */
  request: string;
  session: string;
  model: string;
  prompt: number;
  completion: number;
  cached: number;
  reasoning: number;
}

export interface TelemetrySink {
  request(end: RequestEndEvent): void;
  usage(usage: AttemptUsage): void;
  /** One log line, as it is printed. */
  event(event: Readonly<Record<string, unknown>>): void;
}

/** Of this process. */
export const telemetrySink: { sink: TelemetrySink | undefined } = { sink: undefined };
