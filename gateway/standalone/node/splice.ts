/** One client connection, carried to workerd byte for byte. */
import { connect, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { ApiError, errorBody } from '../../../shared/openai/errors.ts';
import { Outflow } from './outflow.ts';
import type { Outlets } from './outlet.ts';
import { type MarkedAnswer, readMarker } from './outlet-marker.ts';

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
 * With `outlets`, the body of an answer whose head names one comes from there.
 */
export function splice(client: Socket, path: string, traffic: Traffic, outlets?: Outlets): void {
  new Splice(client, path, traffic, outlets);
}

class Splice {
  readonly #client: Socket;
  readonly #path: string;
  readonly #traffic: Traffic;
  readonly #outlets: Outlets | undefined;
  #upstream: Socket;
  #connected = false;
  // One buffer for all reads, as long as the client's side of the kernel takes each piece at once: Node's own way is fresh memory for
  // each, and a third of this process' time went into collecting it.
  #landing = Buffer.allocUnsafeSlow(READ_BYTES);
  /** The beginning of an answer that an outlet will write. */
  #held: Buffer | undefined;
  /** The answer that an outlet writes. As long as there is one, workerd is not read. */
  #outflow: Outflow | undefined;
  /** What workerd said behind that answer, in the same read. */
  #behind: Buffer | undefined;
  /** An outlet's answer was the last thing that went to the client; its head said so of the connection. */
  #afterOutlet: 'no' | 'stays' | 'closes' = 'no';
  /** Since that answer began. */
  #clientSpoke = false;
  /** workerd closed behind an outlet's answer; the client's next bytes open a new connection. */
  #idle = false;

  constructor(client: Socket, path: string, traffic: Traffic, outlets: Outlets | undefined) {
    this.#client = client;
    this.#path = path;
    this.#traffic = traffic;
    this.#outlets = outlets;
    this.#upstream = this.#connect();
    client.on('data', (chunk: Buffer) => this.#fromClient(chunk));
    client.on('drain', () => {
      if (this.#outflow === undefined) this.#upstream.resume();
      else this.#outflow.drained();
    });
    client.on('end', this.#leave);
    client.on('error', this.#leave);
    client.on('close', this.#leave);
  }

  readonly #leave = (): void => {
    this.#outflow?.cancel();
    this.#upstream.destroy();
    this.#client.destroy();
  };

  #connect(): Socket {
    const onread = {
      buffer: () => {
        if (this.#client.writableLength > 0) this.#landing = Buffer.allocUnsafeSlow(READ_BYTES);
        return this.#landing;
      },
      callback: (length: number) => {
        this.#fromUpstream(this.#landing.subarray(0, length));
        return true;
      },
    };
    const options = { path: this.#path, highWaterMark: WRITE_BUFFER_BYTES, onread };
    const upstream = connect(options);
    upstream.on('drain', () => this.#client.resume());
    upstream.on('connect', () => {
      this.#connected = true;
    });
    upstream.on('end', () => this.#upstreamEnded());
    upstream.on('error', () => {
      if (this.#idle || upstream !== this.#upstream) return;
      if (this.#connected) reset(this.#client);
      else refuse(this.#client, 'The gateway is starting or restarting. Try again shortly.');
    });
    return upstream;
  }

  #fromClient(chunk: Buffer): void {
    this.#traffic.chunks += 1;
    this.#clientSpoke = true;
    if (this.#idle) this.#reconnect();
    const room = this.#upstream.write(chunk);
    if (this.#upstream.writableLength === 0) free(chunk);
    else if (!room) this.#client.pause();
  }

  #fromUpstream(chunk: Buffer): void {
    this.#afterOutlet = 'no';
    // workerd writes a marked head at once, and what is before it is small: the secret lies in one read, unless a client asks for
    // several things at a time and does not read. Such a client gets the head as it is and the text for whoever knows no outlets.
    if (this.#outlets !== undefined && (this.#held !== undefined || chunk.indexOf(this.#outlets.secretBytes) >= 0)) {
      this.#marked(chunk, this.#outlets);
    } else {
      this.#toClient(chunk);
    }
  }

  #toClient(chunk: Buffer): void {
    this.#traffic.chunks += 1;
    if (!this.#client.write(chunk) && this.#client.writableLength > 0) this.#upstream.pause();
  }

  /** What was read has an outlet's answer in it. */
  #marked(chunk: Buffer, outlets: Outlets): void {
    // A copy: `chunk` lies where the next read will land.
    const bytes = Buffer.concat(this.#held === undefined ? [chunk] : [this.#held, chunk]);
    this.#held = undefined;
    const reading = readMarker(bytes, outlets.secretBytes);
    switch (reading.kind) {
      case 'unmarked':
        return this.#toClient(bytes);
      case 'broken':
        return reset(this.#client);
      case 'incomplete':
        if (reading.start > 0) this.#toClient(bytes.subarray(0, reading.start));
        this.#held = bytes.subarray(reading.start);
        return;
      case 'marked':
        if (reading.start > 0) this.#toClient(bytes.subarray(0, reading.start));
        if (reading.end < bytes.length) this.#behind = bytes.subarray(reading.end);
        return this.#takeFrom(outlets, reading);
    }
  }

  #takeFrom(outlets: Outlets, { session, stream, opening, closes }: MarkedAnswer): void {
    this.#upstream.pause();
    this.#clientSpoke = false;
    this.#outflow = new Outflow({
      client: this.#client,
      traffic: this.#traffic,
      opening,
      ended: () => this.#outflowEnded(closes),
      broke: () => reset(this.#client),
    });
    outlets.take(session, stream, this.#outflow);
  }

  #outflowEnded(closes: boolean): void {
    this.#outflow = undefined;
    this.#afterOutlet = closes ? 'closes' : 'stays';
    const behind = this.#behind;
    this.#behind = undefined;
    if (behind !== undefined) this.#fromUpstream(behind);
    if (this.#outflow === undefined && !this.#client.writableNeedDrain) this.#upstream.resume();
  }

  #upstreamEnded(): void {
    if (this.#held !== undefined) return reset(this.#client);
    // To workerd the answer was over with its head, and the connection idle for as long as the answer took.
    if (this.#afterOutlet === 'stays') {
      if (this.#clientSpoke) return reset(this.#client);
      this.#idle = true;
      this.#upstream.destroy();
      this.#client.setTimeout(LINGER_MS, this.#leave);
      return;
    }
    this.#client.setTimeout(LINGER_MS, this.#leave);
    this.#client.end();
  }

  #reconnect(): void {
    this.#idle = false;
    this.#afterOutlet = 'no';
    this.#connected = false;
    this.#client.setTimeout(0, this.#leave);
    this.#upstream = this.#connect();
  }
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
