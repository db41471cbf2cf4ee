import type { AttemptBody, AttemptRequest, ResultOf } from '../../../shared/attempts/attempt-request.ts';
import type { ClientDisconnect } from '../../../shared/proxy/client-disconnect.ts';
import type { Env } from '../../env.ts';
import {
  type CallResult,
  decodeCallResult,
  decodeResponse,
  type EncodedCallResult,
  headerJson,
  OPEN_HEADER,
} from './call-encoding.ts';
import { LocalCall, type LocalCallResult, type LocalTunnel, localTunnelOf } from './local-calls.ts';

/** Larger request bodies are sent with `fetch`, which streams them. */
const CALL_MAX_BYTES = 64 * 1024;

/** The parts of the Worker's request that an attempt needs. */
export interface RequestScope {
  env: Env;
  ctx: { waitUntil(work: Promise<unknown>): void };
  /** Returns a signal that is aborted when the client disconnects. */
  signal(): AbortSignal;
  client: Pick<ClientDisconnect, 'on'>;
}

/**
 * Requests an attempt from the tunnel object of `session`: in memory if the object is in this process, with a call if
 * the response may arrive whole and soon, otherwise with a `fetch`. Rejects if the object is gone; its next instance
 * can then be called.
 */
export async function callTunnel(
  scope: RequestScope,
  session: string,
  open: AttemptRequest,
  body: AttemptBody,
): Promise<ResultOf<'whole' | 'stream' | 'offloaded' | 'failure'>> {
  const callee = localTunnelOf(session);
  // Another process cannot write to the client's socket in this process.
  if (callee === undefined && scope.env.PROCESSES !== undefined) open = { ...open, offload: false };
  if (body instanceof Uint8Array && body.length <= CALL_MAX_BYTES && !open.resume) {
    const result = await askSoon(scope, session, open, body, callee);
    if (result.kind !== 'fetch') return result;
  }
  // If a call took too long, its attempt is fetched here too. The object recognizes the attempt by its name and does
  // not open it twice.
  return fetchAttempt(scope, session, open, body);
}

/**
 * Requests the attempt in memory or with a call. Returns `fetch` if neither is possible, or if the response is not
 * complete soon.
 */
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

/** Requests the attempt from an object in this process. */
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
 * Requests the attempt with a call. It costs half as much as a `fetch`, but can neither stream nor notice that the
 * client disconnects. A second call, `leave`, reports the disconnection.
 */
async function callAttempt(
  { env, ctx, client }: RequestScope,
  session: string,
  open: AttemptRequest,
  body: Uint8Array,
): Promise<CallResult> {
  const stub = env.TUNNEL.getByName(session);
  const { requestId, attempt } = open;
  // When the client disconnects, the runtime may end the request, except for `waitUntil`. `leave` arrives after
  // `attempt`, because calls of one stub arrive in order.
  client.on(() => ctx.waitUntil(Promise.resolve(stub.leave(requestId, attempt)).catch(() => {})));
  return decodeCallResult((await stub.attempt(JSON.stringify(open), body)) as EncodedCallResult);
}

async function fetchAttempt(scope: RequestScope, session: string, open: AttemptRequest, body: AttemptBody) {
  // A stub that threw stays broken, so each request gets a new stub.
  const stub = scope.env.TUNNEL.getByName(session);
  const headers = { [OPEN_HEADER]: headerJson(open) };
  const signal = scope.signal();
  return decodeResponse(await stub.fetch('https://tunnel/attempt', { method: 'POST', headers, body, signal }));
}
