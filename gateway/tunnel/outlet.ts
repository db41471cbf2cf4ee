import { TransientMap } from '../../shared/collections/transient-map.ts';
import { WireError } from '../../shared/wire/error.ts';
import { readFrames, writeFrame } from '../../shared/wire/frame-codec.ts';
import type { Frame } from '../../shared/wire/frames.ts';
import { owned } from '../../shared/wire/owned.ts';
import { FrameWriter } from '../../shared/wire/writer.ts';
import type { Env } from '../env.ts';
import type { ObjectSocket } from '../object-context.ts';
import { type AttemptFailure, nameOf } from './attempt.ts';
import { Departing, type Held } from './departing.ts';
import { departing, stays } from './departure.ts';

/** Whoever knows a stream's number takes the stream: drawn at random, told to the Worker alone. 1 to 2^48. */
function drawNumber(): number {
  const [high = 0, low = 0] = crypto.getRandomValues(new Uint32Array(2));
  return 1 + (high % 2 ** 16) * 2 ** 32 + low;
}

/** workerd's end of a WebSocket that it dialled. */
interface OutletSocket extends ObjectSocket {
  binaryType: string;
  accept(): void;
  addEventListener(type: 'message', call: (event: { data: string | ArrayBuffer }) => void): void;
  addEventListener(type: 'close' | 'error', call: () => void): void;
}

/** As browsers number the states of a WebSocket. */
const OPEN = 1;

/** What an object needs of its way out; see LOCAL_OUTLETS in env.ts for another one. */
export type AnswerOutlet = Pick<Outlet, 'open' | 'connect' | 'rest' | 'offer' | 'holds' | 'leave' | 'takeBack'>;

/** What came of offering an answer: its first bytes, and the number that the rest goes by; or how it ended before that. */
export type Offer =
  | { kind: 'departs'; number: number; first: Uint8Array }
  | { kind: 'empty' }
  | { kind: 'failed'; code: AttemptFailure };

/**
 * The way on which streamed answers leave where one process owns the public socket (standalone/node/outlet.ts): their bytes go to it over one
 * WebSocket for each object, and it writes them to the clients. A stream of JavaScript's, which workerd would have to read token by token,
 * costs several times as much, and most of what its collector has to clear away.
 *
 * An answer is announced (ACCEPT) when its first data is there, and the Worker's response names its number. With the response that process
 * learns whose it is and takes it (CREDIT); DATA follows, then END. RESET in the other direction: its client left, or never saw it. CREDIT of
 * nothing: nobody has come for it yet.
 */
export class Outlet {
  readonly #env: Env;
  readonly #session: string;
  readonly #streams = new TransientMap<number, Departing>();
  readonly #names = new TransientMap<string, Departing>();
  readonly #out = new FrameWriter();
  #previous: number | undefined;
  #socket: OutletSocket | undefined;
  #wanted = false;
  #connecting = false;

  constructor(env: Env, session: string) {
    this.#env = env;
    this.#session = session;
  }

  /** Answers can leave this way now. Where they could not for once, it is tried again. */
  get open(): boolean {
    if (this.#socket === undefined && this.#wanted) void this.connect().catch(() => {});
    return this.#socket !== undefined;
  }

  /** Where it fails answers leave as the Worker's own, which costs more and is no harm. */
  async connect(): Promise<void> {
    const { OUTLET, OUTLET_SECRET = '' } = this.#env;
    this.#wanted = true;
    if (OUTLET === undefined || this.#socket !== undefined || this.#connecting) return;
    const headers = { upgrade: 'websocket', 'x-otela-outlet': OUTLET_SECRET, 'x-otela-session': this.#session };
    this.#connecting = true;
    const response = await OUTLET.fetch('http://outlet/outlet', { headers }).finally(() => {
      this.#connecting = false;
    });
    const { webSocket: socket } = response as Response & { webSocket?: OutletSocket | null };
    if (!socket) return;
    socket.binaryType = 'arraybuffer';
    socket.accept();
    if (!this.#wanted) return socket.close(1000);
    socket.addEventListener('message', ({ data }) => this.#onMessage(socket, data));
    const gone = () => this.#gone(socket);
    socket.addEventListener('close', gone);
    socket.addEventListener('error', gone);
    this.#socket = socket;
  }

  /** Nothing more will be offered, until `connect`. What is leaving goes on to its end. */
  rest(): void {
    this.#wanted = false;
    this.#endIfIdle();
  }

  #endIfIdle(): void {
    if (this.#wanted || this.#streams.size > 0) return;
    this.#socket?.close(1000);
    this.#socket = undefined;
  }

  /** Waits for the answer's first data, then `tell`s. */
  offer(held: Held, tell: (offer: Offer) => void): void {
    const { exchange } = held;
    const name = nameOf(exchange.request);
    const number = drawNumber();
    const over = () => {
      this.#streams.delete(number);
      this.#names.delete(name);
    };
    const stream: Departing = new Departing(held, {
      first: (bytes) => {
        if (this.#socket === undefined) {
          tell({ kind: 'failed', code: 'failed' }); // lost since the answer's head came: nothing of it went out
          return exchange.fail('failed', 'there is no way out');
        }
        this.#streams.set(number, stream);
        this.#names.set(name, stream);
        this.#put({ type: 'accept', stream: number, bodyOffset: 0, bodyDone: true });
        stream.farewell = departing(name);
        tell({ kind: 'departs', number, first: owned(bytes) });
      },
      none: (code) => tell(code === undefined ? { kind: 'empty' } : { kind: 'failed', code }),
      data: (offset, bytes) => this.#put({ type: 'data', stream: number, offset, bytes }),
      end: (offset) => {
        over();
        this.#put({ type: 'end', stream: number, offset });
      },
      withdrawn: () => {
        over();
        stays(name);
        this.#put({ type: 'reset', stream: number, code: 'cancelled', message: '' });
      },
      left: () => {
        over();
        this.#endIfIdle();
      },
      abandoned: () => this.#put({ type: 'reset', stream: number, code: 'cancelled', message: '' }),
    });
    exchange.answer.pour(stream);
  }

  /** It is leaving, or about to. */
  holds(name: string): boolean {
    return this.#names.has(name);
  }

  /** Its client left before it could be taken. */
  leave(name: string): void {
    this.#names.get(name)?.leave();
  }

  /** The Worker needs it after all, behind its first data. Undefined: it is gone. */
  takeBack(name: string): Held | undefined {
    return this.#names.get(name)?.withdraw();
  }

  #onMessage(socket: OutletSocket, data: string | ArrayBuffer): void {
    try {
      if (typeof data === 'string') throw new WireError('bad_frame', 'words');
      readFrames(new Uint8Array(data), (frame) => {
        if (frame.type === 'credit') this.#onCredit(this.#streams.get(frame.stream), frame.consumed + frame.window);
        else if (frame.type === 'reset') this.#streams.get(frame.stream)?.leave();
        else throw new WireError('bad_frame', `no ${frame.type} comes this way`);
      });
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      socket.close(1002, error.message);
      this.#gone(socket);
    }
  }

  #onCredit(stream: Departing | undefined, limit: number): void {
    if (limit > 0) stream?.grant(limit);
    else stream?.unclaimed(Date.now());
  }

  #gone(socket: OutletSocket): void {
    if (this.#socket !== socket) return;
    this.#socket = undefined;
    for (const stream of [...this.#streams.values()]) stream.leave();
    if (this.#wanted) void this.connect().catch(() => {});
  }

  /** What is put in one turn goes as one message. */
  #put(frame: Frame): void {
    if (this.#out.length === 0) queueMicrotask(() => this.#flush());
    this.#previous = writeFrame(this.#out, frame, this.#previous);
  }

  #flush(): void {
    this.#previous = undefined;
    if (this.#socket?.readyState === OPEN) this.#socket.send(this.#out.message);
    this.#out.again();
    this.#endIfIdle();
  }
}
