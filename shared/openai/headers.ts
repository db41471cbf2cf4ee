import { traceIdOf } from './traceparent.ts';

/** What of a client's headers reaches an engine. Credentials, cookies and addresses are not on the list and never will be. */
const TO_ENGINE = ['content-type', 'accept', 'anthropic-version', 'anthropic-beta', 'openai-beta'] as const;

/**
 * What of an engine's headers reaches a client. Lengths and transfer codings are this connection's own business. `location` stays here:
 * SDKs follow it, and send their `x-api-key` and the prompt to where a provider likes.
 */
const TO_CLIENT: ReadonlySet<string> = new Set([
  'content-type',
  // Of an engine behind a proxy that compresses what it was asked not to: without it the body could not be read.
  'content-encoding',
  'content-disposition',
  'retry-after',
  'retry-after-ms',
  'x-should-retry',
  'openai-processing-ms',
]);

/** Longest value passed on; a longer one is dropped, as the tunnel would refuse the whole frame. */
const VALUE_MAX = 4096;

/** Other bytes come decoded, as letters that no engine's HTTP client could send again and that would not fit the frame. */
const PLAIN = /^[\t\x20-\x7e]*$/;

/**
 * `value`: of a header by its lower-case name. `requestId`: the client's own, where it gave one; else the agent sends the
 * stream's name.
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
  // The standard wants both dropped where the first cannot be read: an engine would start a trace out of nonsense.
  if (traceparent === undefined || traceIdOf(traceparent) === undefined || !isPlain(traceparent)) return headers;
  headers.push(['traceparent', traceparent]);
  const tracestate = value('tracestate') ?? undefined;
  if (tracestate !== undefined && isPlain(tracestate)) headers.push(['tracestate', tracestate]);
  return headers;
}

function isPlain(value: string): boolean {
  return value.length <= VALUE_MAX && PLAIN.test(value);
}

/** RFC 9110 §5.5; what an engine (or a hostile agent) sends beyond it is not passed on. */
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** What no browser shows as a page. */
const SAFE_TYPE = /^(?:application\/json|text\/event-stream)\s*(?:;|$)/i;

export function headersToClient(engine: Iterable<readonly [string, string]>): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, value] of engine) {
    if (TO_CLIENT.has(name) && HEADER_VALUE.test(value)) headers[name] = value;
  }
  // A browser that guesses would take a provider's bytes for a page of the gateway's own origin.
  if (!SAFE_TYPE.test(headers['content-type'] ?? '')) headers['x-content-type-options'] = 'nosniff';
  return headers;
}

/** Proxies on the way must neither collect nor compress a stream. */
export const STREAM_HEADERS = { 'cache-control': 'no-cache, no-transform', 'x-accel-buffering': 'no' } as const;

/** A model's name may hold what a header may not. */
export function headerSafe(text: string): string {
  return /^[\x20-\x7e]*$/.test(text) ? text : encodeURIComponent(text);
}

/** What the headers of an answer would have told, of a stream that was opened before a node answered: a comment of its own. */
export function lateComment(
  node: { session: string; provider: string },
  attempts: number,
  servedModel?: string,
): string {
  const served = servedModel === undefined ? '' : ` served-model=${headerSafe(servedModel)}`;
  return `: otela node=${node.session} attempts=${attempts} provider=${node.provider}${served}\n\n`;
}

/** What a client may choose as its request id: it goes into logs, headers and file names. */
export const REQUEST_ID_PATTERN = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;
