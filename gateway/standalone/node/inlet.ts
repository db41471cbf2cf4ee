/** The WebSocket by which small requests go to the Worker: see gateway/inlet. It is dialled until it stands, and again whenever it breaks. */
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { TransientMap } from '../../../shared/collections/transient-map.ts';
import { WireError } from '../../../shared/wire/error.ts';
import { FrameWriter } from '../../../shared/wire/writer.ts';
import {
  INLET_HEADER,
  INLET_PATH,
  MESSAGE_BYTES,
  type Question,
  type Reply,
  readReplies,
  writeQuestion,
} from '../../inlet/frames.ts';
import type { Outflow } from './outflow.ts';
import type { Outlets } from './outlet.ts';

/** workerd takes a third of a second to start. */
const AGAIN_MS = 100;
const HANDSHAKE_MS = 5_000;
/** So many times without success: somebody should know. */
const TRIES_TOLD = 100;
/** Requests that workerd has not read: with more, those that come go by HTTP. */
const UNREAD_MAX_BYTES = 8 * 1024 * 1024;
/**
 * Requests that wait for their answer's head; those that come beyond go by HTTP. All share one context there, in which workerd allows
 * 10,000 timers, and each waits by two.
 */
const ASKED_MAX = 3_000;
const MESSAGE_MAX_BYTES = 16 * 1024 * 1024;
/** RFC 6455 §7.4.1. */
const PROTOCOL_ERROR = 1002;

/** Whoever asked. One of these is called, once. */
export interface Asker {
  whole(reply: Extract<Reply, { type: 'whole' }>): void;
  departs(reply: Extract<Reply, { type: 'departs' }>): void;
  /** The body comes to what is returned. */
  begins(reply: Extract<Reply, { type: 'begins' }>): Outflow;
  /** There will be no answer: workerd is gone. */
  broke(): void;
}

export interface Asked {
  /** The client left: nothing is called any more. */
  leave(): void;
}

interface InletOptions {
  /** workerd's Unix socket. */
  path: string;
  outlets: Pick<Outlets, 'secret' | 'refuse'>;
}

export class Inlet {
  readonly #options: InletOptions;
  readonly #asked = new TransientMap<number, Asker | Outflow>();
  readonly #out = new FrameWriter();
  #socket: WebSocket | undefined;
  #last = 0;
  #closed = false;

  constructor(options: InletOptions) {
    this.#options = options;
  }

  get open(): boolean {
    const { size } = this.#asked;
    return this.#socket !== undefined && size < ASKED_MAX && this.#socket.bufferedAmount < UNREAD_MAX_BYTES;
  }

  /** Resolves when it stands, or could not be had at once: then it is dialled again. */
  async connect(): Promise<void> {
    if (!(await this.#dial())) void this.#again();
  }

  async #again(): Promise<void> {
    for (let tries = 1; ; tries++) {
      await delay(AGAIN_MS);
      if (this.#closed || (await this.#dial())) return;
      if (tries === TRIES_TOLD) console.error('inlet: workerd takes no connection; requests go by HTTP');
    }
  }

  close(): void {
    this.#closed = true;
    this.#socket?.terminate();
  }

  /** Only while it is open. Copies what it is given. */
  ask(head: Uint8Array, body: Uint8Array, asker: Asker): Asked {
    const number = ++this.#last;
    this.#asked.set(number, asker);
    this.#put({ type: 'ask', number, head, body });
    return { leave: () => this.#leave(number) };
  }

  #dial(): Promise<boolean> {
    const { path, outlets } = this.#options;
    const socket = new WebSocket(`ws://inlet${INLET_PATH}`, {
      createConnection: () => connect(path),
      handshakeTimeout: HANDSHAKE_MS,
      headers: { [INLET_HEADER]: outlets.secret },
      perMessageDeflate: false,
      maxPayload: MESSAGE_MAX_BYTES,
    });
    return new Promise((resolve) => {
      socket.on('open', () => {
        if (this.#closed) return socket.terminate();
        this.#socket = socket;
        resolve(true);
      });
      socket.on('message', (message, isBinary) => this.#receive(socket, message, isBinary));
      socket.on('error', () => socket.terminate());
      socket.on('close', () => {
        resolve(false);
        if (this.#socket === socket) this.#gone();
      });
    });
  }

  #receive(socket: WebSocket, message: unknown, isBinary: boolean): void {
    if (socket !== this.#socket) return;
    try {
      if (!isBinary || !Buffer.isBuffer(message)) throw new WireError('bad_frame', 'not a binary message');
      readReplies(message, (reply) => this.#onReply(reply));
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      console.error(`inlet: ${reason}`);
      socket.close(PROTOCOL_ERROR, reason.slice(0, 40));
      this.#gone();
    }
  }

  #onReply(reply: Reply): void {
    const { number } = reply;
    const asked = this.#asked.get(number);
    if (asked === undefined) return this.#onUnwanted(reply);
    if (reply.type === 'begins') return this.#begin(number, reply, asked);
    if (reply.type === 'data') return this.#flowing(asked).data(reply.offset, reply.bytes);
    this.#asked.delete(number);
    switch (reply.type) {
      case 'whole':
        return this.#fresh(asked).whole(reply);
      case 'departs':
        return this.#fresh(asked).departs(reply);
      case 'end':
        return this.#flowing(asked).end(reply.offset);
      case 'broke':
        return 'whole' in asked ? asked.broke() : asked.break();
    }
  }

  /** Its client left meanwhile. */
  #onUnwanted(reply: Reply): void {
    if (reply.type === 'departs') this.#options.outlets.refuse(reply.session, reply.stream);
  }

  #begin(number: number, reply: Extract<Reply, { type: 'begins' }>, asked: Asker | Outflow): void {
    const outflow = this.#fresh(asked).begins(reply);
    this.#asked.set(number, outflow);
    outflow.begin({
      credit: (consumed, window) => this.#put({ type: 'credit', number, limit: consumed + window }),
      cancel: () => this.#leave(number),
    });
  }

  #fresh(asked: Asker | Outflow): Asker {
    if ('whole' in asked) return asked;
    throw new WireError('bad_state', 'a second answer');
  }

  #flowing(asked: Asker | Outflow): Outflow {
    if (!('whole' in asked)) return asked;
    throw new WireError('bad_state', 'a body without its head');
  }

  #leave(number: number): void {
    if (this.#asked.delete(number)) this.#put({ type: 'leave', number });
  }

  /** Whoever waits is told, and it is dialled again. */
  #gone(): void {
    this.#socket = undefined;
    this.#out.again();
    const asked = [...this.#asked.values()];
    this.#asked.clear();
    for (const one of asked) {
      if ('whole' in one) one.broke();
      else one.break();
    }
    void this.#again();
  }

  /** What is said in one turn of the event loop goes as one message. */
  #put(question: Question): void {
    if (this.#out.length === 0) setImmediate(() => this.#flush());
    writeQuestion(this.#out, question);
    if (this.#out.length >= MESSAGE_BYTES) this.#flush();
  }

  #flush(): void {
    if (this.#out.length === 0) return;
    const message = this.#out.take();
    this.#socket?.send(message);
  }
}
