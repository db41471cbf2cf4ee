/** Requests that the Node host refuses before other parts of the gateway see them. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { ApiError, errorBody } from '../../../shared/openai/api-errors.ts';
import type { ClientConnection } from './client-connections.ts';

/** A host as in RFC 3986 §3.2.2, without characters that no host name contains. */
const HOST = /^(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$/;

interface RequestFault {
  status: 400 | 417;
  message: string;
}

export const NO_HOST: RequestFault = { status: 400, message: 'The Host header names no host.' };

/** True for a path, or a whole URL as sent to a proxy (RFC 9112 §3.2.1, §3.2.2). */
function isTarget(target = ''): boolean {
  if (target.startsWith('/')) return !target.split('?', 1)[0]?.includes('\\');
  return /^https?:\/\//i.test(target) && URL.canParse(target);
}

/**
 * Finds something that `node:http` accepts and another parser between client and gateway could read differently (RFC
 * 9112 §2.3, §3.2, §6.1).
 */
export function findAmbiguity({ rawHeaders, headers, httpVersion, url }: IncomingMessage): RequestFault | undefined {
  if (!isTarget(url)) return bad('The target of the request is not a path.');
  // llhttp also accepts versions 0.9 and 2.0, and reads their bodies like those of 1.1.
  if (httpVersion !== '1.1' && httpVersion !== '1.0') return bad(`HTTP/${httpVersion} is not supported.`);
  let hosts = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) if (rawHeaders[at]?.toLowerCase() === 'host') hosts++;
  if (hosts > 1) return bad('The request has more than one Host header.');
  if (hosts === 0 && httpVersion === '1.1') return bad('The request has no Host header.');
  if (headers.host !== undefined && !HOST.test(headers.host)) return NO_HOST;
  const coding = headers['transfer-encoding'];
  if (coding !== undefined && httpVersion === '1.0') return bad('HTTP/1.0 does not allow Transfer-Encoding.');
  // A body with "gzip, chunked" ends where its chunks end, and its compressed content would go to an engine unchanged.
  if (coding !== undefined && coding.toLowerCase() !== 'chunked')
    return bad('The only supported Transfer-Encoding is chunked.');
  const { expect } = headers;
  if (expect !== undefined && expect.toLowerCase() !== '100-continue')
    return { status: 417, message: 'The only supported Expect is 100-continue.' };
  return undefined;
}

function bad(message: string): RequestFault {
  return { status: 400, message };
}

/** Refuses a request and ends the connection. Bytes after the request are not read. */
export function refuseAmbiguous(response: ServerResponse, { status, message }: RequestFault): void {
  const error = new ApiError('invalid_request', message);
  response.writeHead(status, { 'content-type': 'application/json', connection: 'close' });
  response.end(errorBody(error));
}

/**
 * Sends an error for bytes that the parser cannot read, as the last bytes of the connection. The error is never written
 * inside another response, and never before the response to an earlier request, because a client, or a proxy that
 * shares the connection, would mistake it for that response.
 */
export function refuseUnreadable(
  error: NodeJS.ErrnoException,
  socket: Duplex,
  connection: ClientConnection | undefined,
): void {
  // No error can be sent if the connection is lost, and no second error is sent to a client that keeps sending.
  if (error.code === 'ECONNRESET' || !socket.writable || !connection || connection.unreadable)
    return void socket.destroy();
  const { answering } = connection;
  const last = answering.at(-1);
  // The connection ends after its last response anyway. That response was sent, or its request has arrived completely,
  // so the unreadable bytes do not matter.
  if (connection.last && (last === undefined || last.response.writableEnded || last.message.complete)) return;
  connection.unreadable = true;
  const tell = () => answerUnreadable(socket, UNREADABLE[error.code ?? ''] ?? BAD_REQUEST);
  const cut = last !== undefined && !last.message.complete;
  if (cut && last.response.headersSent) return void socket.destroy();
  const before = cut ? answering.at(-2) : last;
  if (before === undefined) return tell();
  before.response.once('close', () => {
    if (socket.writable) tell();
  });
}

/** The response if no request could be read. */
interface UnreadableError {
  status: number;
  statusText: string;
  message: string;
}

const unreadable = (status: number, statusText: string): UnreadableError => ({
  status,
  statusText,
  message: `${statusText}: this is not valid HTTP (RFC 9112).`,
});

export const BAD_REQUEST = unreadable(400, 'Bad Request');
export const REQUEST_TIMEOUT = unreadable(408, 'Request Timeout');
export const CONNECT_REFUSED: UnreadableError = {
  status: 405,
  statusText: 'Method Not Allowed',
  message: 'CONNECT: this server is not a proxy.',
};

const UNREADABLE: Readonly<Record<string, UnreadableError>> = {
  HPE_HEADER_OVERFLOW: unreadable(431, 'Request Header Fields Too Large'),
  ERR_HTTP_REQUEST_TIMEOUT: REQUEST_TIMEOUT,
};

/** Sends an error and ends the connection. */
export function answerUnreadable(socket: Duplex, { status, statusText, message }: UnreadableError): void {
  endWithError(socket, `${status} ${statusText}`, new ApiError('invalid_request', message));
}

/** Sends an error to a connection without a response, and ends it. `line`: status and words. */
export function endWithError(socket: Duplex, line: string, error: ApiError): void {
  const body = errorBody(error);
  let head = `HTTP/1.1 ${line}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n`;
  for (const [name, value] of Object.entries(error.headers)) head += `${name}: ${value}\r\n`;
  socket.end(`${head}connection: close\r\n\r\n${body}`);
}
