import type { ClientDisconnect } from '../../../shared/proxy/client-disconnect.ts';
import type { ProxyResponse, WriteBody } from '../../../shared/proxy/proxy-http-types.ts';
import { serverSink, waitForDrain } from '../../../shared/proxy/server-response-sink.ts';
import type { LocalOffloads } from './local-offload.ts';
import type { ResponseWriter } from './response-writer.ts';

/** Maximum bytes of an offloaded response that may wait for the client. */
const WINDOW_BYTES = 256 * 1024;
/**
 * If the object has less credit than this, it gets more. A piece needs less than this: without enough credit for its
 * next piece the object would not write, and only writes trigger grants.
 */
const LOW_BYTES = WINDOW_BYTES / 2;

/** Writes a response of the pipeline to its client. An offloaded response may continue after this has resolved. */
export async function writeAnswer(
  client: ClientDisconnect,
  response: ResponseWriter,
  answer: ProxyResponse,
  offloads: LocalOffloads,
): Promise<void> {
  const { status, headers, body, rest } = answer;
  if (rest !== undefined && body instanceof Uint8Array)
    return offload(client, response, answer, { body, rest }, offloads);
  if (typeof body === 'function') return write(response, answer, body);
  if (body instanceof ReadableStream) return stream(client, response, answer, body);
  if (body !== null)
    headers['content-length'] = String(typeof body === 'string' ? Buffer.byteLength(body) : body.length);
  else if (status !== 204 && status !== 304) headers['content-length'] = '0';
  response.writeHead(status, headers);
  response.end(body ?? undefined);
}

/** Writes the response's first data, and then the rest from the object that has it. */
function offload(
  client: ClientDisconnect,
  response: ResponseWriter,
  { status, headers }: ProxyResponse,
  { body, rest }: { body: Uint8Array; rest: number },
  offloads: LocalOffloads,
): void {
  let sent = 0;
  let granted = 0;
  const grant = () => {
    if (granted - sent >= LOW_BYTES) return;
    granted = sent + WINDOW_BYTES;
    stream?.grant(granted);
  };
  const stream = offloads.take(rest, {
    write: (bytes) => {
      sent += bytes.length;
      if (response.write(bytes) && granted - sent < LOW_BYTES) queueMicrotask(grant);
    },
    end: () => response.end(),
    destroy: () => response.destroy(),
  });
  if (stream === undefined) return void response.destroy();
  if (client.disconnected) return stream.leave();
  client.on(() => stream.leave());
  response.writeHead(status, headers);
  response.on('drain', grant);
  response.write(body);
  grant();
}

/**
 * Writes a body. The pipeline writes directly to the socket: there is no stream between the engine's bytes and the
 * client.
 */
async function write(response: ResponseWriter, { status, headers }: ProxyResponse, body: WriteBody): Promise<void> {
  response.writeHead(status, headers);
  // Bytes that are already available are sent together with the head.
  const early = setImmediate(() => response.flushHeaders());
  await body(serverSink(response));
  clearImmediate(early);
}

async function stream(
  client: ClientDisconnect,
  response: ResponseWriter,
  { status, headers, length }: ProxyResponse,
  body: ReadableStream<Uint8Array>,
): Promise<void> {
  const reader = body.getReader();
  client.on(() => reader.cancel().catch(() => {}));
  response.writeHead(status, length === undefined ? headers : { ...headers, 'content-length': String(length) });
  // Bytes that are already available are sent together with the head.
  const early = setImmediate(() => response.flushHeaders());
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      if (!response.write(next.value)) await waitForDrain(response);
    }
    response.end();
  } catch {
    response.destroy(); // an incomplete body must not look complete
  } finally {
    clearImmediate(early);
  }
}
