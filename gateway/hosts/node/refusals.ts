/** Requests that the Node host answers before any room sees them. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { ApiError, errorBody } from '../../../shared/openai/errors.ts';
import type { Connection } from './connections.ts';

/** What `node:http` lets through and another reader on the way could understand otherwise (RFC 9112 §3.2, §6.1). */
export function ambiguityOf({ rawHeaders, headers, httpVersion }: IncomingMessage): string | undefined {
  let hosts = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) if (rawHeaders[at]?.toLowerCase() === 'host') hosts++;
  if (hosts > 1) return 'The request has more than one Host header.';
  if (httpVersion === '1.0' && headers['transfer-encoding'] !== undefined) return 'HTTP/1.0 has no Transfer-Encoding.';
  return undefined;
}

export function refuseAmbiguous(response: ServerResponse, message: string): void {
  const error = new ApiError('invalid_request', message);
  response.writeHead(400, { 'content-type': 'application/json', connection: 'close' });
  response.end(errorBody(error));
}

/**
 * The parser cannot read on: one error is the last that goes out on the connection. It never stands inside another answer, and never before an
 * answer to an earlier request: a client, or a proxy that shares the connection, would take it for that one.
 */
export function refuseUnreadable(
  error: NodeJS.ErrnoException,
  socket: Duplex,
  connection: Connection | undefined,
): void {
  // A second error: the client goes on sending, and nothing of it will ever be read.
  if (error.code === 'ECONNRESET' || !socket.writable || !connection || connection.unreadable)
    return void socket.destroy();
  connection.unreadable = true;
  const [status, words] = UNREADABLE[error.code ?? ''] ?? [400, 'Bad Request'];
  const tell = () => answerUnreadable(socket, status, words, `${words}: this is not HTTP as RFC 9112 has it.`);
  const { answering } = connection;
  const last = answering.at(-1);
  const cut = last !== undefined && !last.message.complete;
  if (cut && last.response.headersSent) return void socket.destroy();
  const before = cut ? answering.at(-2) : last;
  if (before === undefined) return tell();
  before.response.once('close', () => {
    if (socket.writable) tell();
  });
}

const UNREADABLE: Readonly<Record<string, [status: number, words: string]>> = {
  HPE_HEADER_OVERFLOW: [431, 'Request Header Fields Too Large'],
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'Request Timeout'],
};

/** The connection ends with it. */
export function answerUnreadable(socket: Duplex, status: number, words: string, message: string): void {
  const body = errorBody(new ApiError('invalid_request', message));
  const head = `HTTP/1.1 ${status} ${words}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n`;
  socket.end(head + body);
}
