import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ProxyResponse } from '../../shared/proxy/message.ts';
import { serverSink } from '../../shared/proxy/server-sink.ts';

/** Writes the pipeline's response to its client; resolves when that is over, also where the client has left. */
export async function writeResponse(
  message: IncomingMessage,
  response: ServerResponse,
  { status, headers, body }: ProxyResponse,
): Promise<void> {
  const sink = serverSink(response);
  if (response.destroyed) return typeof body === 'function' ? body(sink) : undefined;
  // The unread rest of a body would be taken for the next request.
  if (!message.complete) response.setHeader('connection', 'close');
  if (body instanceof ReadableStream) throw new Error('the mesh has no bodies of its own kind');
  if (typeof body === 'function') {
    response.writeHead(status, headers);
    return body(sink);
  }
  const length = body === null ? {} : { 'content-length': Buffer.byteLength(body) };
  response.writeHead(status, { ...headers, ...length });
  response.end(body ?? undefined);
}
