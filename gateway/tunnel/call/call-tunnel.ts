import type { ClientDisconnect } from '../../../shared/proxy/client-disconnect.ts';
import type { AttemptBody, AttemptFailure, AttemptHead, AttemptRequest } from '../../../shared/upstream/attempt.ts';
import { NO_BODY } from '../../../shared/upstream/response.ts';
import type { Env } from '../../env.ts';
import { OffloadedResponse } from '../offload/offloaded-response.ts';
import {
  type CallResult,
  decodeCallResult,
  type EncodedCallResult,
  FAILURE_HEADER,
  HEAD_HEADER,
  headerJson,
  type LocalCallResult,
  NUMBER_HEADER,
  OPEN_HEADER,
} from './attempt-call.ts';
import { LocalCall, type LocalTunnel, localTunnelOf } from './local-calls.ts';

/** Larger request bodies are sent with `fetch`, which streams them. */
const CALL_MAX_BYTES = 64 * 1024;

/** The result of an attempt, as the Worker receives it. */
export type AttemptReply =
  | {
      kind: 'head';
      status: number;
      head: AttemptHead;
      body: Uint8Array | ReadableStream<Uint8Array> | null;
      whole: boolean;
      /** Length of a whole body that is streamed. Absent: unknown. */
      length?: number;
      /** If present, `body` is the first data; the rest is offloaded unless the Worker asks for it. */
      offloaded?: OffloadedResponse;
    }
  | { kind: 'failure'; code: AttemptFailure; message: string };

/** The parts of the Worker's request that an attempt needs. */
export interface RequestScope {
  env: Env;
  ctx: { waitUntil(work: Promise<unknown>): void };
  /** Aborted when the client disconnects. */
  signal(): AbortSignal;
  client: Pick<ClientDisconnect, 'on'>;
}

/**
 * Requests an attempt from the object of `session`: in memory if the object is in this process, with a call if the
 * response may arrive whole and soon, otherwise with a `fetch`. Rejects if the object is gone; its successor can then
 * be asked.
 */
export async function callTunnel(
  scope: RequestScope,
  session: string,
  open: AttemptRequest,
  body: AttemptBody,
): Promise<AttemptReply> {
  if (body instanceof Uint8Array && body.length <= CALL_MAX_BYTES && !open.resume) {
    const result = await askSoon(scope, session, open, body, localTunnelOf(session));
    if (result.kind === 'failure') return result;
    if (result.kind === 'offloaded') return offloadedReply(scope, session, open, result);
    if (result.kind === 'head') {
      const { status, head, whole } = result;
      return { kind: 'head', status, head, body: NO_BODY.has(status) ? null : whole, whole: true };
    }
  }
  // Also after a call that takes longer: the object knows the attempt by its name and does not open it twice.
  return fetchAttempt(scope, session, open, body);
}

/** In memory or with a call. Returns `fetch` if neither fits, or if the response takes longer. */
async function askSoon(
  scope: RequestScope,
  session: string,
  open: AttemptRequest,
  body: Uint8Array,
  callee: LocalTunnel | undefined,
): Promise<LocalCallResult> {
  if (open.streaming && (callee === undefined || !open.offload)) return { kind: 'fetch' };
  if (callee === undefined) return callAttempt(scope, session, open, body);
  return askLocally(scope, session, new LocalCall(open, body), callee);
}

/** The rest of the response is being sent to the client already, or will be. */
function offloadedReply(
  scope: RequestScope,
  session: string,
  open: AttemptRequest,
  { status, head, number, first }: Extract<LocalCallResult, { kind: 'offloaded' }>,
): AttemptReply {
  const offloaded = new OffloadedResponse(scope, session, open, number);
  return { kind: 'head', status, head, body: first, whole: false, offloaded };
}

/** For an object in this process. */
function askLocally(
  { env, ctx, client }: RequestScope,
  session: string,
  call: LocalCall,
  callee: LocalTunnel,
): Promise<LocalCallResult> {
  const { requestId, attempt } = call.open;
  const stub = () => env.TUNNEL.getByName(session);
  client.on(() => {
    call.withdraw();
    ctx.waitUntil(Promise.resolve(stub().leave(requestId, attempt)).catch(() => {}));
  });
  return callee.ask(call, () => Promise.resolve(stub().holds(requestId, attempt)));
}

/**
 * Costs half as much as a `fetch`, but it can neither stream nor notice that the client disconnects. A second call,
 * `leave`, reports the disconnect.
 */
async function callAttempt(
  { env, ctx, client }: RequestScope,
  session: string,
  open: AttemptRequest,
  body: Uint8Array,
): Promise<CallResult> {
  const stub = env.TUNNEL.getByName(session);
  const { requestId, attempt } = open;
  // When the client disconnects, only this part of the request continues. Calls of one stub arrive in order.
  client.on(() => ctx.waitUntil(Promise.resolve(stub.leave(requestId, attempt)).catch(() => {})));
  return decodeCallResult((await stub.attempt(JSON.stringify(open), body)) as EncodedCallResult);
}

async function fetchAttempt(
  scope: RequestScope,
  session: string,
  open: AttemptRequest,
  body: AttemptBody,
): Promise<AttemptReply> {
  const { env } = scope;
  // A stub that threw stays broken, so each request gets a new stub.
  const stub = env.TUNNEL.getByName(session);
  const response = await stub.fetch('https://tunnel/attempt', {
    method: 'POST',
    headers: { [OPEN_HEADER]: headerJson(open) },
    body,
    signal: scope.signal(),
  });
  const head = response.headers.get(HEAD_HEADER);
  if (head === null) {
    const code = (response.headers.get(FAILURE_HEADER) ?? 'failed') as AttemptFailure;
    return { kind: 'failure', code, message: await response.text() };
  }
  const known = { status: response.status, head: JSON.parse(head) as AttemptHead };
  const number = response.headers.get(NUMBER_HEADER);
  if (number === null) {
    const length = response.headers.get('content-length');
    if (length === null) return { kind: 'head', ...known, body: response.body, whole: false };
    return { kind: 'head', ...known, body: response.body, whole: true, length: Number(length) };
  }
  const first = new Uint8Array(await response.arrayBuffer());
  return offloadedReply(scope, session, open, { kind: 'offloaded', ...known, number: Number(number), first });
}
