import { readTraceId } from './traceparent.ts';

/** Headers of a client that are passed to an engine. Credentials, cookies and addresses are never on this list. */
const TO_ENGINE = ['content-type', 'accept', 'anthropic-version', 'anthropic-beta', 'openai-beta'] as const;

/**
 * Headers of an engine that are passed to a client. Lengths and transfer codings belong to the connection. `location`
 * is not passed on: SDKs follow it, and would send their `x-api-key` and the prompt to any address that a provider
 * chooses.
 */
const TO_CLIENT: ReadonlySet<string> = new Set([
  'content-type',
  // Present if a proxy compresses although it was asked not to. Without this header the client could not read the body.
  'content-encoding',
  'content-disposition',
  'retry-after',
  'retry-after-ms',
  'x-should-retry',
  'openai-processing-ms',
  // From the agent; see translation/translation.ts.
  'x-otela-translated',
]);

/** Maximum length of a header's value. A longer value is dropped, because the tunnel would refuse the whole frame. */
const VALUE_MAX = 4096;

/**
 * Values that can be sent to an engine. Other bytes were decoded to characters on arrival, which no HTTP client could
 * send.
 */
const PLAIN = /^[\t\x20-\x7e]*$/;

/**
 * @param value returns a header by its lower-case name
 * @param requestId the client's own id if it sent one; otherwise undefined, and the agent sends the request's internal
 * name
 */
export function headersToEngine(
  value: (name: string) => string | null | undefined,
  requestId: string | undefined,
): [string, string][] {
  const headers: [string, string][] = requestId === undefined ? [] : [['x-request-id', requestId]];
  for (const name of TO_ENGINE) {
    const given = value(name) ?? undefined;
    if (given !== undefined && isPlain(given)) headers.push([name, given]);
  }
  const traceparent = value('traceparent') ?? undefined;
  // W3C Trace Context requires dropping `tracestate`, too, if `traceparent` is invalid. Otherwise an engine would start
  // a trace with an invalid id.
  if (traceparent === undefined || readTraceId(traceparent) === undefined || !isPlain(traceparent)) return headers;
  headers.push(['traceparent', traceparent]);
  const tracestate = value('tracestate') ?? undefined;
  if (tracestate !== undefined && isPlain(tracestate)) headers.push(['tracestate', tracestate]);
  return headers;
}

function isPlain(value: string): boolean {
  return value.length <= VALUE_MAX && PLAIN.test(value);
}

/**
 * Allowed values of a header (RFC 9110 §5.5). An engine or a hostile agent may send others, which are not passed on.
 */
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Media types that no browser renders as a page. */
const SAFE_TYPE = /^(?:application\/json|text\/event-stream)\s*(?:;|$)/i;

export function headersToClient(engine: Iterable<readonly [string, string]>): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, value] of engine) {
    if (TO_CLIENT.has(name) && HEADER_VALUE.test(value)) headers[name] = value;
  }
  // A browser that guesses the type could render a provider's bytes as a page of the gateway's origin.
  if (!SAFE_TYPE.test(headers['content-type'] ?? '')) headers['x-content-type-options'] = 'nosniff';
  return headers;
}

/** Headers that ask proxies neither to buffer nor to compress a stream. */
export const STREAM_HEADERS = { 'cache-control': 'no-cache, no-transform', 'x-accel-buffering': 'no' } as const;

/** Encodes a model's name, which may contain characters that a header may not. */
export function encodeHeaderValue(text: string): string {
  return /^[\x20-\x7e]*$/.test(text) ? text : encodeURIComponent(text);
}

/**
 * An SSE comment with what the response's headers would have contained, for a stream that began before a node answered.
 */
export function headersComment(
  node: { session: string; provider: string },
  attempts: number,
  servedModel?: string,
): string {
  const served = servedModel === undefined ? '' : ` served-model=${encodeHeaderValue(servedModel)}`;
  return `: otela node=${node.session} attempts=${attempts} provider=${node.provider}${served}\n\n`;
}

/** Pattern of accepted request ids of clients, which are used in logs, headers and file names. */
export const REQUEST_ID_PATTERN = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;
