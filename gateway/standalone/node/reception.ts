/** One client connection from its beginning: what it asks goes by the inlet as long as that can take it, then all goes to workerd. */
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { Reply } from '../../inlet/frames.ts';
import type { Asked, Asker, Inlet } from './inlet.ts';
import { Outflow } from './outflow.ts';
import type { Outlets } from './outlet.ts';
import { chunkOf } from './outlet-marker.ts';
import type { Pause } from './pause.ts';
import { readPlain } from './plain-request.ts';
import { reset, splice } from './splice.ts';
import { Asking, type Traffic } from './traffic.ts';

/** As long as workerd waits for a request that does not come. */
const SILENCE_MS = 15_000;
/** A request in pieces: its rest follows at once, or it is one for workerd. */
const PIECES_MS = 1_000;
/** Of one request; who sends a byte at a time is not to make us look at all of it each time. */
const PIECES_MAX = 16;
/** What a client says before it has its answer. Beyond it nothing is read before that answer is out: a FIN is not seen, a reset is. */
const AHEAD_MAX_BYTES = 64 * 1024;

const NOTHING = Buffer.alloc(0);
/** RFC 9110 §8.6, §6.4.1. */
const WITHOUT_BODY = new Set([204, 304]);

interface ReceptionOptions {
  /** workerd's Unix socket. */
  path: string;
  traffic: Traffic;
  inlet: Inlet;
  outlets: Outlets;
  pause: Pause;
}

export function receive(client: Socket, options: ReceptionOptions): void {
  new Reception(client, options);
}

class Reception implements Asker {
  readonly #client: Socket;
  readonly #options: ReceptionOptions;
  /** What was read and not asked yet: part of a request, or what came ahead of an answer. */
  #unread: Buffer = NOTHING;
  /** Reads that `#unread` is of, while nobody answers. */
  #pieces = 0;
  /** The client has not taken its last answer yet. */
  #full = false;
  #asked: Asked | undefined;
  readonly #asking: Asking;
  #outflow: Outflow | undefined;

  constructor(client: Socket, options: ReceptionOptions) {
    this.#client = client;
    this.#options = options;
    this.#asking = new Asking(options.traffic);
    client.on('data', this.#onData);
    client.on('drain', this.#onDrain);
    client.on('timeout', this.#onSilence);
    for (const event of ['end', 'error', 'close']) client.on(event, this.#leave);
    client.setTimeout(SILENCE_MS);
  }

  readonly #leave = (): void => {
    this.#asking.set(false);
    this.#asked?.leave();
    this.#outflow?.cancel();
    this.#client.destroy();
  };

  readonly #onDrain = (): void => {
    this.#outflow?.drained();
    if (!this.#full) return;
    this.#full = false;
    this.#next();
  };

  readonly #onData = (chunk: Buffer): void => {
    if (this.#client.writableEnded) return; // it crossed our end, and the client will say it again
    this.#options.traffic.chunks += 1;
    this.#unread = this.#unread.length === 0 ? chunk : Buffer.concat([this.#unread, chunk]);
    if (this.#isAnswering) {
      if (this.#unread.length > AHEAD_MAX_BYTES) this.#options.pause.begin();
    } else this.#read();
  };

  get #isAnswering(): boolean {
    return this.#asked !== undefined || this.#outflow !== undefined || this.#full;
  }

  #read(): void {
    if (!this.#options.inlet.open) return this.#handOver();
    const reading = readPlain(this.#unread);
    if (reading.kind === 'other' || (reading.kind === 'incomplete' && ++this.#pieces > PIECES_MAX))
      return this.#handOver();
    if (reading.kind === 'incomplete') return void this.#client.setTimeout(PIECES_MS);
    this.#client.setTimeout(0);
    this.#pieces = 0;
    // Nothing: a view of it would keep the request's memory as long as its answer takes.
    this.#unread = reading.end === this.#unread.length ? NOTHING : this.#unread.subarray(reading.end);
    this.#asking.set(true);
    this.#asked = this.#options.inlet.ask(reading.head, reading.body, this);
  }

  readonly #onSilence = (): void => {
    if (this.#isAnswering) return;
    if (this.#unread.length > 0) return this.#handOver();
    if (this.#client.writableEnded) return this.#leave();
    this.#client.end();
    this.#client.setTimeout(SILENCE_MS);
  };

  /** From here on all is workerd's. */
  #handOver(): void {
    const { path, traffic, outlets, pause } = this.#options;
    const client = this.#client;
    client.setTimeout(0);
    client.off('data', this.#onData).off('drain', this.#onDrain).off('timeout', this.#onSilence);
    for (const event of ['end', 'error', 'close']) client.off(event, this.#leave);
    const said = this.#unread;
    this.#unread = NOTHING;
    splice(client, { path, traffic, pause, outlets, said });
  }

  whole({ status, lines, body }: Extract<Reply, { type: 'whole' }>): void {
    this.#asked = undefined;
    const length = WITHOUT_BODY.has(status) ? '' : `content-length: ${body.length}\r\n`;
    const head = `${statusLine(status)}${lines}${length}\r\n`;
    this.#write(Buffer.concat([bytesOf(head), body]));
    this.#next();
  }

  departs({ status, lines, session, stream, first }: Extract<Reply, { type: 'departs' }>): void {
    const head = bytesOf(`${statusLine(status)}${lines}transfer-encoding: chunked\r\n\r\n`);
    const opening = first.length === 0 ? head : Buffer.concat([head, chunkOf(first)]);
    this.#options.outlets.take(session, stream, this.#flow(opening, true));
  }

  begins({ status, lines, length }: Extract<Reply, { type: 'begins' }>): Outflow {
    const coding = length === undefined ? 'transfer-encoding: chunked' : `content-length: ${length}`;
    return this.#flow(bytesOf(`${statusLine(status)}${lines}${coding}\r\n\r\n`), length === undefined);
  }

  broke(): void {
    this.#asking.set(false);
    this.#asked = undefined;
    reset(this.#client);
  }

  #flow(opening: Buffer, chunked: boolean): Outflow {
    this.#asked = undefined;
    this.#outflow = new Outflow({
      client: this.#client,
      traffic: this.#options.traffic,
      opening,
      chunked,
      ended: () => {
        this.#outflow = undefined;
        this.#next();
      },
      broke: () => {
        this.#asking.set(false);
        this.#outflow = undefined;
        reset(this.#client);
      },
    });
    return this.#outflow;
  }

  #write(bytes: Buffer): void {
    this.#options.traffic.chunks += 1;
    this.#client.write(bytes);
  }

  /** The answer is out. */
  #next(): void {
    this.#asking.set(false);
    if (this.#client.writableNeedDrain) {
      // Who does not read what it asked for is not asked about more. It may take its time, as with workerd.
      this.#full = true;
      return;
    }
    this.#options.pause.end();
    if (this.#unread.length > 0) this.#read();
    else this.#client.setTimeout(SILENCE_MS);
  }
}

function statusLine(status: number): string {
  return `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Unknown'}\r\n`;
}

/** A byte per letter, as an engine's headers were read. `lines` has none that is more. */
function bytesOf(head: string): Buffer {
  return Buffer.from(head, 'latin1');
}
