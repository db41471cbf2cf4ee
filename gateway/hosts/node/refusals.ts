/** Requests that the Node host answers before any room sees them. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { ApiError, errorBody } from '../../../shared/openai/errors.ts';

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
  response.end(JSON.stringify(errorBody(error)));
}

export function refuse(response: ServerResponse, message: string): void {
  const error = new ApiError('server_is_overloaded', message);
  response.writeHead(503, { 'content-type': 'application/json', connection: 'close', ...error.headers });
  response.end(JSON.stringify(errorBody(error)));
}

/** What is no HTTP gets one answer, and the connection ends: nobody knows where the next request would begin. */
export function refuseUnreadable(error: NodeJS.ErrnoException, socket: Duplex): void {
  if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
  const [status, words]: [number, string] =
    error.code === 'HPE_HEADER_OVERFLOW'
      ? [431, 'Request Header Fields Too Large']
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? [408, 'Request Timeout']
        : [400, 'Bad Request'];
  answerUnreadable(socket, status, words, `${words}: this is not HTTP as RFC 9112 has it.`);
}

/** The connection ends with it. */
export function answerUnreadable(socket: Duplex, status: number, words: string, message: string): void {
  const body = JSON.stringify(errorBody(new ApiError('invalid_request', message)));
  const head = `HTTP/1.1 ${status} ${words}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n`;
  socket.end(head + body);
}
