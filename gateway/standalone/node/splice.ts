/** One client connection, carried to workerd byte for byte. */
import { connect, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { ApiError, errorBody } from '../../../shared/openai/errors.ts';
import { Outflow } from './outflow.ts';
import type { Outlets } from './outlet.ts';
import type { MarkedAnswer } from './outlet-marker.ts';
import type { Pause } from './pause.ts';
import { Asking, type Traffic } from './traffic.ts';

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

/** An agent's tunnel, whose words ask for nothing. Believed for how long a gateway waits when it ends, and for nothing else. */
const UPGRADE = /\r\nupgrade:/i;

/**
 * Carries a client to workerd's Unix socket at `path` until one side ends.
 *
 * workerd watches for a client's leaving only as a hang-up: a FIN leaves it waiting until it writes, which during a long prefill
 * is minutes. A client's FIN therefore closes the Unix socket whole, which workerd sees at once, in every phase.
 * The other way round nothing that broke may look complete: an error towards workerd resets the client.
 * With `outlets`, the body of an answer whose head names one comes from there.
 */
export function splice(client: Socket, options: SpliceOptions): void {
  const spliced = new Splice(client, options);
  if (options.said !== undefined && options.said.length > 0) spliced.fromClient(options.said);
}

interface SpliceOptions {
  path: string;
  traffic: Traffic;
  pause: Pause;
  outlets?: Outlets | undefined;
  /** What the client has said already. */
  said?: Buffer;
}

class Splice {
  readonly #client: Socket;
  readonly #pause: Pause;
  readonly #path: string;
  readonly #traffic: Traffic;
  readonly #outlets: Outlets | undefined;
  readonly #asking: Asking;
  /** Known with the first chunk. */
  #upgrades: boolean | undefined;
  #upstream: Socket;
  #connected = false;
  // One buffer for all reads, as long as the client's side of the kernel takes each piece at once: Node's own way is fresh memory for
  // each, and a third of this process' time went into collecting it.
  #landing = Buffer.allocUnsafeSlow(READ_BYTES);
  /** The beginning of an answer that an outlet will write. */
  #held: Buffer | undefined;
  /** The answer that an outlet writes. As long as there is one, nothing of workerd's goes to the client. */
  #outflow: Outflow | undefined;
  /** What workerd said behind that answer: a client may ask before it has it. */
  #behind: Buffer | undefined;
  /** An outlet's answer was the last thing that went to the client. */
  #afterOutlet = false;
  /** workerd closed its connection below an outlet's answer: the client's ends behind that answer. */
  #upstreamClosed = false;

  constructor(client: Socket, { path, traffic, pause, outlets }: SpliceOptions) {
    this.#client = client;
    this.#pause = pause;
    this.#path = path;
    this.#traffic = traffic;
    this.#asking = new Asking(traffic);
    this.#outlets = outlets;
    this.#upstream = this.#connect();
    client.on('data', (chunk: Buffer) => this.fromClient(chunk));
    client.on('drain', () => {
      this.#outflow?.drained();
      if (this.#behind === undefined) this.#upstream.resume();
    });
    client.on('end', this.#leave);
    client.on('error', this.#leave);
    client.on('close', this.#leave);
  }

  readonly #leave = (): void => {
    this.#asking.set(false);
    this.#outflow?.cancel();
    this.#hold(undefined);
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
    upstream.on('drain', () => this.#pause.end());
    upstream.on('connect', () => {
      this.#connected = true;
    });
    upstream.on('end', () => this.#upstreamEnded());
    upstream.on('error', () => {
      if (this.#upstreamClosed) return;
      // Written to behind its closing, which we had not read yet.
      if (this.#afterOutlet && this.#connected && this.#outflow === undefined) return this.#upstreamEnded();
      if (this.#connected) reset(this.#client);
      else refuse(this.#client, 'The gateway is starting or restarting. Try again shortly.');
    });
    return upstream;
  }

  fromClient(chunk: Buffer): void {
    this.#traffic.chunks += 1;
    this.#upgrades ??= UPGRADE.test(chunk.toString('latin1'));
    if (!this.#upgrades) this.#asking.set(true);
    // Never said again on another connection: of a request that had begun there, the rest would be read as a request of its own.
    if (this.#upstreamClosed) return;
    const room = this.#upstream.write(chunk);
    if (this.#upstream.writableLength === 0 && !this.#afterOutlet) free(chunk);
    else if (!room) this.#pause.begin();
  }

  #fromUpstream(chunk: Buffer): void {
    if (this.#outflow !== undefined) {
      // The answer to what a client asked before this one's end.
      this.#hold(Buffer.concat(this.#behind === undefined ? [chunk] : [this.#behind, chunk]));
      this.#upstream.pause();
      return;
    }
    this.#afterOutlet = false;
    // In a WebSocket's words too: that one has begun is said by words that any body may quote, and who believed them let the secret pass.
    if (this.#outlets !== undefined && (this.#held !== undefined || this.#outlets.mark.isIn(chunk))) {
      return this.#marked(chunk, this.#outlets);
    }
    this.#toClient(chunk);
  }

  #hold(behind: Buffer | undefined): void {
    this.#behind = behind;
    if (behind === undefined) this.#outlets?.holdingBack.delete(this);
    else this.#outlets?.holdingBack.add(this);
  }

  #toClient(chunk: Buffer): void {
    this.#traffic.chunks += 1;
    this.#asking.set(false); // what is left of it moves, or it is over
    if (!this.#client.write(chunk) && this.#client.writableLength > 0) this.#upstream.pause();
  }

  /** What was read has an outlet's answer in it. */
  #marked(chunk: Buffer, outlets: Outlets): void {
    // A copy: `chunk` lies where the next read will land.
    const bytes = Buffer.concat(this.#held === undefined ? [chunk] : [this.#held, chunk]);
    this.#held = undefined;
    const reading = outlets.mark.read(bytes);
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
        if (reading.end < bytes.length) this.#hold(bytes.subarray(reading.end));
        return this.#takeFrom(outlets, reading);
    }
  }

  #takeFrom(outlets: Outlets, { session, stream, opening, chunked, closes }: MarkedAnswer): void {
    this.#afterOutlet = true;
    this.#asking.set(true);
    if (this.#behind === undefined) this.#upstream.resume(); // to see it end
    this.#outflow = new Outflow({
      client: this.#client,
      traffic: this.#traffic,
      opening,
      chunked,
      ended: () => this.#outflowEnded(closes),
      broke: () => reset(this.#client),
    });
    outlets.take(session, stream, this.#outflow);
  }

  #outflowEnded(closes: boolean): void {
    this.#outflow = undefined;
    this.#asking.set(false);
    if (closes || (this.#upstreamClosed && this.#behind === undefined)) return this.#endClient();
    const behind = this.#behind;
    this.#hold(undefined);
    if (behind !== undefined) this.#fromUpstream(behind);
    if (this.#outflow === undefined && !this.#client.writableNeedDrain) this.#upstream.resume();
  }

  #upstreamEnded(): void {
    if (this.#held !== undefined) return reset(this.#client);
    if (this.#behind !== undefined) return reset(this.#client);
    if (!this.#afterOutlet) return this.#outflow === undefined ? this.#endClient() : reset(this.#client);
    // To workerd the answer was over with its head, and the connection idle for as long as the answer took.
    this.#upstream.destroy();
    this.#upstreamClosed = true;
    if (this.#outflow === undefined) this.#endClient();
  }

  #endClient(): void {
    this.#client.setTimeout(LINGER_MS, this.#leave);
    this.#client.end();
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
