/**
 * The interface through which a host exports data about requests, if its operator enables that. Without a sink, no data
 * is computed for the export.
 */

/** A finished request, without text, a key's secret or an address. */
export interface RequestEndEvent {
  /** The internal id, which usage records also have. */
  name: string;
  /** The id that the client knows. */
  id: string;
  /** When the request arrived; milliseconds since the epoch. */
  at: number;
  totalMs: number;
  firstMs?: number | undefined;
  /** OpenTelemetry's name of the operation: `chat`, `text_completion`, `embeddings`, … */
  operation: string;
  endpoint: string;
  model: string;
  served: string;
  node: string;
  provider: string;
  status: number;
  error: string;
  /** Attempts and waits. `at`: when the step ended, in milliseconds since the request arrived. */
  steps: readonly (
    | { at: number; kind: 'wait'; ms: number; outcome: string }
    | { at: number; kind: 'attempt'; node: string; outcome: string }
  )[];
  /** The client's trace context, to which this request belongs. */
  traceparent: string | undefined;
}

/** The usage of one attempt, reported shortly after its request ended. */
export interface AttemptUsage {
  /** Internal id of the request; see `RequestEndEvent.name`. */
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
  /** Exports one log line as it is printed. */
  event(event: Readonly<Record<string, unknown>>): void;
}

/** The sink of this process; undefined: no export. */
export const telemetrySink: { sink: TelemetrySink | undefined } = { sink: undefined };
