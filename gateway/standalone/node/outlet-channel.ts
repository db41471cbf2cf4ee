/** The WebSocket over which one tunnel object sends the answers of its streams. */
import type { WebSocket } from 'ws';
import { TransientMap } from '../../../shared/collections/transient-map.ts';
import { WireError } from '../../../shared/wire/error.ts';
import { readFrames, writeFrame } from '../../../shared/wire/frame-codec.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { FrameWriter } from '../../../shared/wire/writer.ts';
import type { Outflow } from './outflow.ts';
import { patiently } from './patiently.ts';

/** An announced answer is out of workerd within milliseconds, unless its client had left or the machine is loaded. The object is asked so often what it knows of it. */
const UNTAKEN_ASK_MS = 100;
/** Asked as often it is given up. */
const UNTAKEN_ASKS = 50;
/** Announced or taken, of one object. There are at most 4096 clients; the rest is for numbers whose client had left. */
const STREAMS_MAX = 16_384;
/** Our frames are a few bytes per stream: an object that leaves so much unread is gone. */
const UNREAD_MAX_BYTES = 4 * 1024 * 1024;
/** RFC 6455 §7.4.1. */
const PROTOCOL_ERROR = 1002;

interface Announced {
  /** What the object said of it since. */
  outcome: 'open' | 'ended' | 'broke';
  forget(): void;
}

interface OutletChannelOptions {
  session: string;
  /** A number can be taken from now on. */
  announced(stream: number): void;
  /** Whether announced answers may have come out and wait to be read. */
  isHeldBack(): boolean;
  closed(): void;
}

/** After END or RESET of either side nothing more is said of a stream. */
export class OutletChannel {
  readonly session: string;
  readonly #socket: WebSocket;
  readonly #options: OutletChannelOptions;
  readonly #announced = new TransientMap<number, Announced>();
  readonly #taken = new TransientMap<number, Outflow>();
  readonly #out = new FrameWriter();
  #previous: number | undefined;
  #closed = false;

  constructor(socket: WebSocket, options: OutletChannelOptions) {
    this.session = options.session;
    this.#socket = socket;
    this.#options = options;
    socket.on('message', (message, isBinary) => this.#receive(message, isBinary));
    socket.on('error', () => socket.terminate());
    socket.on('close', () => this.#end());
  }

  has(stream: number): boolean {
    return this.#announced.has(stream);
  }

  /** Hands an announced stream to its client. */
  take(stream: number, outflow: Outflow): void {
    const announced = this.#announced.get(stream);
    this.#announced.delete(stream);
    announced?.forget();
    if (announced?.outcome === 'ended') return outflow.beginEnded();
    if (announced?.outcome !== 'open') return outflow.break();
    this.#taken.set(stream, outflow);
    outflow.begin({
      credit: (consumed, window) => this.#put({ type: 'credit', stream, consumed, window }),
      cancel: () => {
        this.#taken.delete(stream);
        this.#put({ type: 'reset', stream, code: 'cancelled', message: 'the client left' });
      },
    });
  }

  /** An announced stream has no client any more. */
  refuse(stream: number): void {
    const announced = this.#announced.get(stream);
    this.#announced.delete(stream);
    announced?.forget();
    if (announced?.outcome === 'open')
      this.#put({ type: 'reset', stream, code: 'cancelled', message: 'the client left' });
  }

  terminate(): void {
    this.#socket.terminate();
    this.#end();
  }

  #receive(message: unknown, isBinary: boolean): void {
    if (this.#closed) return;
    try {
      if (!isBinary || !Buffer.isBuffer(message)) throw new WireError('bad_frame', 'not a binary message');
      readFrames(message, (frame) => this.#frame(frame));
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      console.error(`outlet: ${reason}`);
      this.#socket.close(PROTOCOL_ERROR, reason.slice(0, 40));
      this.#end();
    }
  }

  #frame(frame: Frame): void {
    switch (frame.type) {
      case 'accept':
        return this.#announce(frame.stream);
      case 'data': {
        if (this.#announced.has(frame.stream)) throw new WireError('bad_state', 'data of a stream that is not taken');
        // None: it crossed our reset.
        return this.#taken.get(frame.stream)?.data(frame.offset, frame.bytes);
      }
      case 'end': {
        const announced = this.#announced.get(frame.stream);
        if (announced?.outcome === 'open') announced.outcome = 'ended';
        const outflow = this.#taken.get(frame.stream);
        outflow?.end(frame.offset);
        this.#taken.delete(frame.stream);
        return;
      }
      case 'reset': {
        const announced = this.#announced.get(frame.stream);
        if (announced !== undefined) announced.outcome = 'broke';
        const outflow = this.#taken.get(frame.stream);
        this.#taken.delete(frame.stream);
        return outflow?.break();
      }
      default:
        throw new WireError('bad_state', `${frame.type} is not for an outlet`);
    }
  }

  #announce(stream: number): void {
    if (this.#announced.has(stream) || this.#taken.has(stream)) throw new WireError('bad_state', 'announced twice');
    if (this.#announced.size + this.#taken.size >= STREAMS_MAX) {
      return this.#put({ type: 'reset', stream, code: 'overloaded', message: 'too many streams' });
    }
    this.#announced.set(stream, { outcome: 'open', forget: this.#await(stream, UNTAKEN_ASKS) });
    this.#options.announced(stream);
  }

  /** Returns how to call it off. */
  #await(stream: number, asks: number): () => void {
    return patiently(UNTAKEN_ASK_MS, () => {
      const announced = this.#announced.get(stream);
      if (announced === undefined) return;
      const open = announced.outcome === 'open';
      if (asks > 1) {
        if (open && !this.#options.isHeldBack()) this.#put({ type: 'credit', stream, consumed: 0, window: 0 });
        announced.forget = this.#await(stream, asks - 1);
        return;
      }
      this.#announced.delete(stream);
      if (open) this.#put({ type: 'reset', stream, code: 'unknown', message: 'it never came out' });
    });
  }

  /** Frames of one turn of the event loop share a message. */
  #put(frame: Frame): void {
    if (this.#closed) return;
    if (this.#out.length === 0) setImmediate(() => this.#flush());
    this.#previous = writeFrame(this.#out, frame, this.#previous);
  }

  #flush(): void {
    this.#previous = undefined;
    if (this.#closed || this.#socket.readyState !== this.#socket.OPEN) return;
    if (this.#socket.bufferedAmount > UNREAD_MAX_BYTES) return this.terminate();
    this.#socket.send(this.#out.take());
  }

  #end(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#options.closed();
    for (const { forget } of this.#announced.values()) forget();
    this.#announced.clear();
    for (const outflow of this.#taken.values()) outflow.break();
    this.#taken.clear();
  }
}
