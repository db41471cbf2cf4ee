/** One request to a gateway outside the tunnel, through the same proxies. */
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Socket } from 'node:net';
import { connect as tlsConnect } from 'node:tls';
import { gatewayErrorCode, openAiErrorMessage } from '../../shared/openai/error-message.ts';
import { proxyFor } from '../host/proxy-variables.ts';
import { throughProxy } from './open-websocket.ts';

/** Maximum length of an answer. A list of issuers with their keys is a few KiB. A longer page of a proxy is cut. */
const ANSWER_MAX_BYTES = 64 * 1024;

interface GatewayRequest {
  gateway: URL;
  /** Path below the gateway's path, such as `/agent/admit`. */
  path: string;
  headers: Record<string, string>;
  body: Uint8Array | string;
  env: NodeJS.ProcessEnv;
  /** An HTTP proxy for this request. It takes precedence over the environment's proxies. */
  proxy?: URL | undefined;
  signal: AbortSignal;
}

export interface GatewayAnswer {
  status: number;
  /** The response body, cut after 64 KiB. */
  text: string;
  retryAfter: string | undefined;
  /** The `date` header, unparsed. */
  date: string | undefined;
}

/**
 * Sends a POST. Rejects if no answer arrives: no route, an unknown host name, an untrusted certificate, or an aborted
 * signal.
 */
export async function postToGateway(options: GatewayRequest): Promise<GatewayAnswer> {
  const { gateway, path, headers, body, env, signal } = options;
  const url = new URL(gateway);
  url.pathname = `${gateway.pathname.replace(/\/+$/, '')}${path}`;
  const proxy = options.proxy ?? proxyFor(gateway, env);
  const socket = proxy === undefined ? undefined : await abortable(throughProxy(proxy, url), signal);
  const response = await answerTo(
    url,
    { ...headers, 'content-length': String(Buffer.byteLength(body)) },
    body,
    socket,
    signal,
  );
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of response) {
    chunks.push(Buffer.from(chunk));
    bytes += chunk.length;
    if (bytes > ANSWER_MAX_BYTES) break; // leaving the loop destroys the connection
  }
  return {
    status: response.statusCode ?? 0,
    text: Buffer.concat(chunks).subarray(0, ANSWER_MAX_BYTES).toString('utf8'),
    retryAfter: response.headers['retry-after'],
    date: response.headers.date,
  };
}

function answerTo(
  url: URL,
  headers: Record<string, string>,
  body: Uint8Array | string,
  socket: Socket | undefined,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const secure = url.protocol === 'https:';
  const request = secure ? httpsRequest : httpRequest;
  // If there is a socket through the proxy, the request must use it. With an HTTP agent, `node:http` would open a
  // direct connection.
  const way =
    socket === undefined
      ? { agent: false as const }
      : { createConnection: () => (secure ? tlsConnect({ socket, servername: url.hostname }) : socket) };
  return new Promise((resolve, reject) => {
    const asked = request(url, { method: 'POST', headers, signal, ...way }, resolve);
    asked.on('error', (error) => {
      socket?.destroy();
      reject(error);
    });
    asked.end(body);
  });
}

/**
 * Rejects as soon as `signal` aborts. If the connection is still being opened, it ends later, at the proxy's time
 * limit.
 */
function abortable(connecting: Promise<Socket>, signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    signal.addEventListener('abort', stop, { once: true });
    connecting
      .then((socket) => (signal.aborted ? void socket.destroy() : resolve(socket)), reject)
      .finally(() => signal.removeEventListener('abort', stop));
    if (signal.aborted) stop();
  });
}

type AnswerText = Pick<GatewayAnswer, 'status' | 'text'>;

/** Statuses for which another try would get the same answer. */
const FINAL: ReadonlySet<number> = new Set([400, 401, 403, 426]);

/** The message in the gateway's error envelope, or the start of the body. */
export function errorMessageOf({ status, text }: AnswerText): string {
  return openAiErrorMessage(text) ?? (text.slice(0, 300) || `status ${status}`);
}

/**
 * True if a gateway refuses for good. A page of a login proxy, a firewall or a load balancer without a backend may have
 * the same status. Such a page is not a gateway's answer, and ends neither an engine nor a session.
 */
export function isRefusal(answer: AnswerText): boolean {
  return FINAL.has(answer.status) && gatewayErrorCode(answer.text) !== undefined;
}

/** True if the session existed and has ended. */
export function isSessionOver({ text }: AnswerText): boolean {
  return gatewayErrorCode(text) === 'session_over';
}
