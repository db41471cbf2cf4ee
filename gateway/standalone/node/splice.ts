/** One client connection, carried to workerd byte for byte. */
import { connect, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { ApiError, errorBody } from '../../../shared/openai/errors.ts';

/** What waits when a side stalls is one such buffer and one chunk (64 KiB) per direction: about 160 KiB per connection. */
export const WRITE_BUFFER_BYTES = 16 * 1024;
/** After the last byte: a client that does not take it must not keep the connection. */
const LINGER_MS = 30_000;
/** A refused client may still be sending; closing under it would reset the connection before it has read why. */
const REFUSAL_LINGER_MS = 2_000;

/** What one read of workerd's words takes at most. */
const READ_BYTES = 64 * 1024;

/** Of one read. Memory of this size is given back at once: every 32 MiB of it that waits for the garbage collector makes it look at everything. */
const LARGE_BYTES = 16 * 1024;

/** Gives back the memory of a chunk that the kernel has taken and that nobody reads any more. */
function free(chunk: Buffer): void {
  if (chunk.length < LARGE_BYTES) return;
  if (chunk.buffer instanceof ArrayBuffer && chunk.length === chunk.buffer.byteLength) chunk.buffer.transfer(0);
}

/** How many chunks went by, for all connections together: quiet means that it stands still. */
export interface Traffic {
  chunks: number;
}

/**
 * Carries a client to the Unix socket at `path` until one side ends.
 *
 * workerd watches for a client's leaving only as a hang-up: a FIN leaves it waiting until it writes, which during a long prefill
 * is minutes. A client's FIN therefore closes the Unix socket whole, which workerd sees at once, in every phase.
 * The other way round nothing that broke may look complete: an error towards workerd resets the client.
 */
export function splice(client: Socket, path: string, traffic: Traffic): void {
  // One buffer for all reads, as long as the client's side of the kernel takes each piece at once: Node's own way is fresh memory for
  // each, and a third of this process' time went into collecting it.
  let landing = Buffer.allocUnsafeSlow(READ_BYTES);
  const onread = {
    buffer: () => {
      if (client.writableLength > 0) landing = Buffer.allocUnsafeSlow(READ_BYTES);
      return landing;
    },
    callback: (length: number) => {
      traffic.chunks += 1;
      if (!client.write(landing.subarray(0, length)) && client.writableLength > 0) upstream.pause();
      return true;
    },
  };
  const options = { path, highWaterMark: WRITE_BUFFER_BYTES, onread };
  const upstream = connect(options);
  let connected = false;
  const leave = () => {
    upstream.destroy();
    client.destroy();
  };
  client.on('data', (chunk: Buffer) => {
    traffic.chunks += 1;
    const room = upstream.write(chunk);
    if (upstream.writableLength === 0) free(chunk);
    else if (!room) client.pause();
  });
  client.on('drain', () => upstream.resume());
  upstream.on('drain', () => client.resume());
  client.on('end', leave);
  client.on('error', leave);
  client.on('close', leave);
  upstream.on('connect', () => {
    connected = true;
  });
  upstream.on('end', () => {
    client.setTimeout(LINGER_MS, leave);
    client.end();
  });
  upstream.on('error', () => {
    if (connected) reset(client);
    else refuse(client, 'The gateway is starting or restarting. Try again shortly.');
  });
}

/** Answers whatever the client asks with 503 and closes. */
export function refuse(client: Socket, message: string): void {
  const error = new ApiError('server_is_overloaded', message);
  const body = errorBody(error);
  const headers = {
    ...error.headers,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    connection: 'close',
  };
  const head = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  client.removeAllListeners('data');
  client.removeAllListeners('end');
  client.on('error', () => client.destroy());
  client.on('end', () => client.destroy());
  client.resume();
  client.end(`HTTP/1.1 ${error.status} Service Unavailable\r\n${head.join('')}\r\n${body}`);
  const timer = setTimeout(() => client.destroy(), REFUSAL_LINGER_MS);
  client.on('close', () => clearTimeout(timer));
}

/** Ends a connection so that the client cannot take what it got for everything: RST, or TLS without close_notify. */
export function reset(client: Socket): void {
  if (client instanceof TLSSocket) client.destroy();
  else client.resetAndDestroy();
}
