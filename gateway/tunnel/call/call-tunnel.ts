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

/** Larger bodies go by `fetch`, which streams them. */
const CALL_MAX_BYTES = 64 * 1024;

/** What a Worker gets of an attempt. */
export type AttemptReply =
  | {
      kind: 'head';
      status: number;
      head: AttemptHead;
      body: Uint8Array | ReadableStream<Uint8Array> | null;
      whole: boolean;
      /** Of a whole body that streams. */
      length?: number;
      /** The body is its first data; the rest is offloaded, unless it is asked for. */
      offloaded?: OffloadedResponse;
    }
  | { kind: 'failure'; code: AttemptFailure; message: string };

/** What an attempt needs of the Worker's request. */
export interface RequestScope {
  env: Env;
  ctx: { waitUntil(work: Promise<unknown>): void };
  /** Aborted when the client leaves. */
  signal(): AbortSignal;
  client: Pick<ClientDisconnect, 'on'>;
}

/**
 * Asks the object of `session` for an attempt: in memory where the object is in this process, by a call where the answer may come whole and
 * soon, else by a `fetch`. Rejects where the object is gone: its successor can be asked.
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
  // Also after a call whose answer takes longer: the object knows the attempt by its name and does not open it twice.
  return fetchAttempt(scope, session, open, body);
}

/** In memory or by a call; `fetch`: neither fits, or the answer takes longer. */
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

/** The rest of the answer is on its way out already, or will be. */
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

/** Costs half of what a `fetch` costs, but it can neither stream nor see the client leave. A second call tells that the client left. */
async function callAttempt(
  { env, ctx, client }: RequestScope,
  session: string,
  open: AttemptRequest,
  body: Uint8Array,
): Promise<CallResult> {
  const stub = env.TUNNEL.getByName(session);
  const { requestId, attempt } = open;
  // When the client leaves, only this work of the request goes on. Calls of one stub arrive in order.
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
  // A stub that threw stays broken: each asking gets its own.
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
