/** What a host exports of requests and events, where its operator wants that. Without a sink nothing is made for it. */

/** A request that is over: no text, no key's secret, no address. */
export interface RequestEndEvent {
  /** Names its records of use. */
  name: string;
  /** As the client knows it. */
  id: string;
  /** Milliseconds since 1970. */
  at: number;
  totalMs: number;
  firstMs?: number | undefined;
  /** OpenTelemetry's: `chat`, `text_completion`, `embeddings`, … */
  operation: string;
  endpoint: string;
  model: string;
  served: string;
  node: string;
  provider: string;
  status: number;
  error: string;
  /** `at`: milliseconds since the request came, when it ended. */
  steps: readonly (
    | { at: number; kind: 'wait'; ms: number; outcome: string }
    | { at: number; kind: 'attempt'; node: string; outcome: string }
  )[];
  /** Of the client: the trace that this is a part of. */
  traceparent: string | undefined;
}

/** What one attempt used, a moment after its request's end. */
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
  /** One line of the log, as it is printed. */
  event(event: Readonly<Record<string, unknown>>): void;
}

/** Of this process. */
export const telemetrySink: { sink: TelemetrySink | undefined } = { sink: undefined };
