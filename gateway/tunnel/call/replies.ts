/** The result of an attempt, converted for each way in which a Worker can request it. */
import type { AttemptFailure, AttemptResult } from '../../../shared/upstream/attempt.ts';
import type { OutboundAttempt } from '../../../shared/upstream/outbound-attempt.ts';
import { isEventStream, NO_BODY } from '../../../shared/upstream/response.ts';
import type { OffloadableResponse } from '../offload/offloaded-stream.ts';
import type { OffloadOffer } from '../offload/response-offload.ts';
import { FAILURE_HEADER, HEAD_HEADER, headerJson, type LocalCallResult, NUMBER_HEADER } from './attempt-call.ts';

export function failureResponse(code: AttemptFailure, message: string): Response {
  return new Response(message, { status: 520, headers: { [FAILURE_HEADER]: code, 'content-type': 'text/plain' } });
}

export function responseFor(result: AttemptResult, upstream: OutboundAttempt): Response {
  if (result.kind === 'failure') return failureResponse(result.code, result.message);
  const { status, head, whole } = result;
  const headers: Record<string, string> = { [HEAD_HEADER]: headerJson(head) };
  if (whole !== undefined) headers['content-length'] = String(whole.length);
  if (!NO_BODY.has(status)) return new Response(whole ?? upstream.answer.open(), { status, headers });
  // No client reads the body of such a status, and without a reader the attempt would never end.
  if (whole === undefined) void upstream.answer.open().pipeTo(new WritableStream());
  return new Response(null, { status, headers });
}

/** True if the response may be offloaded: a successful event stream that has not arrived whole. */
export function mayOffload({ status, head, whole }: OffloadableResponse['result']): boolean {
  return whole === undefined && status >= 200 && status < 300 && !NO_BODY.has(status) && isEventStream(head);
}

export function responseTo(offer: OffloadOffer, { status, head }: OffloadableResponse['result']): Response {
  if (offer.kind === 'failed') return failureResponse(offer.code, 'the answer broke off');
  const headers: Record<string, string> = { [HEAD_HEADER]: headerJson(head) };
  if (offer.kind === 'empty') headers['content-length'] = '0';
  else headers[NUMBER_HEADER] = String(offer.number);
  return new Response(offer.kind === 'offloaded' ? offer.first : '', { status, headers });
}

export function localResultFor(
  offer: OffloadOffer,
  { kind, status, head }: OffloadableResponse['result'],
): LocalCallResult {
  if (offer.kind === 'failed') return { kind: 'failure', code: offer.code, message: 'the answer broke off' };
  if (offer.kind === 'empty') return { kind, status, head, whole: new Uint8Array(0) };
  return { ...offer, status, head };
}
