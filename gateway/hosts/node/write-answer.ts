import type { ServerResponse } from 'node:http';
import type { HttpAnswer } from '../../http.ts';
import { OUTLET_HEADER } from '../../tunnel/attempt.ts';
import type { LocalOutlets } from './local-outlet.ts';
import type { NodeRequest } from './node-request.ts';

/** Bytes of an offloaded answer that may wait for its client. */
const WINDOW_BYTES = 256 * 1024;
/** With less than this left more is granted. Above what the object needs for its next piece: below it, it would wait for a grant that no write brings. */
const LOW_BYTES = WINDOW_BYTES / 2;

/** Writes an answer of the pipeline to its client; resolves when that is over, whatever became of it. */
export async function writeAnswer(
  request: NodeRequest,
  response: ServerResponse,
  answer: HttpAnswer,
  outlets: LocalOutlets,
): Promise<void> {
  const { status, headers, body } = answer;
  const { [OUTLET_HEADER]: marker, ...rest } = headers;
  if (marker !== undefined && body instanceof Uint8Array)
    return offload(request, response, status, rest, { marker, body }, outlets);
  if (body instanceof ReadableStream) return stream(request, response, answer, body);
  if (body !== null) rest['content-length'] = String(typeof body === 'string' ? Buffer.byteLength(body) : body.length);
  else if (status !== 204 && status !== 304) rest['content-length'] = '0';
  response.writeHead(status, rest);
  response.end(body ?? undefined);
}

/** The answer's first data, then its rest from the object that has it. */
function offload(
  request: NodeRequest,
  response: ServerResponse,
  status: number,
  headers: Record<string, string>,
  { marker, body }: { marker: string; body: Uint8Array },
  outlets: LocalOutlets,
): void {
  const [, , number, length] = marker.split(' ');
  let sent = 0;
  let granted = 0;
  const grant = () => {
    if (granted - sent >= LOW_BYTES) return;
    granted = sent + WINDOW_BYTES;
    departing?.grant(granted);
  };
  const departing = outlets.take(Number(number), {
    write: (bytes) => {
      sent += bytes.length;
      if (!response.write(bytes)) response.once('drain', grant);
      else if (granted - sent < LOW_BYTES) queueMicrotask(grant);
    },
    end: () => response.end(),
    destroy: () => response.destroy(),
  });
  if (departing === undefined) return void response.destroy();
  if (request.leaving.left) return departing.leave();
  request.leaving.on(() => departing.leave());
  response.writeHead(status, headers);
  response.write(body.subarray(0, Number(length)));
  grant();
}

async function stream(
  request: NodeRequest,
  response: ServerResponse,
  { status, headers, length }: HttpAnswer,
  body: ReadableStream<Uint8Array>,
): Promise<void> {
  const reader = body.getReader();
  request.leaving.on(() => void reader.cancel().catch(() => {}));
  response.writeHead(status, length === undefined ? headers : { ...headers, 'content-length': String(length) });
  // The first bytes go with the head where they are here already.
  const early = setImmediate(() => response.flushHeaders());
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      if (!response.write(next.value)) await drained(response);
    }
    response.end();
  } catch {
    response.destroy(); // never a clean end of half a body
  } finally {
    clearImmediate(early);
  }
}

function drained(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const over = () => {
      response.removeListener('drain', over);
      response.removeListener('close', over);
      resolve();
    };
    response.on('drain', over);
    response.on('close', over);
  });
}
