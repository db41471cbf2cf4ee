import { TransientMap } from '../collections/transient-map.ts';
import { readFrames, writeFrame } from './frame-codec.ts';
import { type FrameMeter, UNSENT_MAX_BYTES } from './frame-limits.ts';
import { FrameWriter } from './frame-writer.ts';
import type { Frame } from './frames.ts';
import type { OutboundStream } from './outbound-stream.ts';
import { DATA_MAX_BYTES, MESSAGE_MAX_BYTES, MESSAGE_TARGET_BYTES, SOCKET_WINDOW_BYTES } from './protocol-constants.ts';
import { SocketWindow } from './socket-window.ts';
import { WindowPool } from './window-pool.ts';
import { WireError } from './wire-error.ts';

/** A stream with at most this many unsent bytes sends before the other streams. */
const SMALL_BYTES = 8 * 1024;

/** Maximum part of the socket's credit that is reserved for streams with few bytes to send. */
const RESERVE_BYTES = 256 * 1024;

/** The socket's operations that the link uses. */
export interface LinkPort {
  send(message: Uint8Array): void;
  /**
   * True if `send` copies the message before it returns, so that the next message can reuse the same memory. If each
   * message had new memory, an agent would spend more time on garbage collection than on transfer.
   */
  readonly copies?: boolean;
  /**
   * True if bytes wait in the socket. Then the link holds frames back and merges them until the port calls `flush`
   * after the socket has drained.
   */
  busy(): boolean;
  /** Calls `flush` once after the current task, so that frames of one task share a message. */
  schedule(flush: () => void): void;
  /**
   * Calls `flush` within some milliseconds, for a frame that can share a message with later ones. Absent: same as
   * `schedule`.
   */
  later?(flush: () => void): void;
  /** Closes the socket, because more control frames wait than a peer that reads ever causes. Called once. */
  stuck(): void;
}

/** Counters of DATA payload bytes since the socket opened. */
export interface LinkState {
  sent: number;
  sendLimit: number;
  received: number;
  receiveLimit: number;
}

/** A body to send on one stream. */
interface Sender {
  outgoing: OutboundStream;
  /** Returns the frames that are written once after the last byte, such as END. */
  ending(): Frame[];
  /** Called after bytes were sent or credit arrived, so that more bytes can be pushed. */
  refill?(): void;
}

/**
 * Carries many streams on one socket. Control frames are sent in order. After them the streams alternate with one DATA
 * frame each, as far as the stream's and the socket's credit allow. The link has no timer: the frames of one task are
 * sent at the task's end, or when a busy socket has drained.
 */
export class Link {
  readonly #port: LinkPort;
  /** The windows that this end grants to streams may grow by taking from this pool. */
  readonly pool = new WindowPool();
  readonly #writer = new FrameWriter();
  /** Complete messages that wait for a busy socket. If they exceed UNSENT_MAX_BYTES, the socket is closed. */
  readonly #full: Uint8Array[] = [];
  #fullBytes = 0;
  readonly #meter: FrameMeter;
  #previous: number | undefined;
  #scheduled = false;
  #closed = false;
  readonly #senders = new TransientMap<number, Sender & { over?: true }>();
  /** Streams that have bytes and credit, in the order in which they may send. */
  readonly #ready = new Set<number>();
  #sent = 0;
  #sendLimit: number;
  /** The socket's window as granted by the peer's last CREDIT. */
  #sendWindow: number;
  readonly #window: SocketWindow;

  /** `restored`: the saved state of a link. All of its streams had ended when it was saved. */
  constructor(port: LinkPort, windows: { send: number; receive: number }, meter: FrameMeter, restored?: LinkState) {
    this.#port = port;
    this.#meter = meter;
    this.#sent = restored?.sent ?? 0;
    this.#sendLimit = restored?.sendLimit ?? windows.send;
    this.#sendWindow = windows.send;
    this.#window = new SocketWindow(windows.receive, restored?.received, restored?.receiveLimit);
  }

  /** The socket's credit counters, for an owner that may hibernate between streams. */
  get state(): LinkState {
    return {
      sent: this.#sent,
      sendLimit: this.#sendLimit,
      received: this.#window.received,
      receiveLimit: this.#window.limit,
    };
  }

  /** True if no stream sends. */
  get idle(): boolean {
    return this.#senders.size === 0;
  }

  /** Payload bytes sent since the socket opened. */
  get sent(): number {
    return this.#sent;
  }

  /** Number of payload bytes that arrived and that no reader has taken. */
  get buffered(): number {
    return this.#window.buffered;
  }

  /** Fraction of the receive window that is used by bytes that wait for readers. */
  get pressure(): number {
    return this.#window.pressure;
  }

  /**
   * Sets the maximum number of bytes that this socket may make us buffer. The new window takes effect as bytes are
   * consumed.
   */
  resize(window: number): void {
    this.#window.resize(window);
  }

  /** Sets the send window, which is known only after the handshake. Call before the peer's first CREDIT. */
  open(sendWindow: number): void {
    this.#sendWindow = Math.min(sendWindow, SOCKET_WINDOW_BYTES);
    this.#sendLimit = this.#sent + this.#sendWindow;
    this.#wake();
  }

  put(frame: Frame): void {
    if (this.#closed) return;
    this.#write(frame);
    this.#wake();
  }

  /**
   * Begins a new message if the current one is full. Control frames can fill a message without DATA, such as all
   * openings after a lost socket, or all unacknowledged reports.
   */
  #write(frame: Frame): void {
    if (this.#writer.length >= MESSAGE_TARGET_BYTES) this.#queue(this.#takeMessage());
    this.#previous = writeFrame(this.#writer, frame, this.#previous);
  }

  #queue(message: Uint8Array): void {
    this.#full.push(message);
    this.#fullBytes += message.length;
    if (this.#fullBytes <= UNSENT_MAX_BYTES) return;
    this.close();
    this.#port.stuck();
  }

  #takeMessage(): Uint8Array {
    this.#previous = undefined;
    return this.#writer.take();
  }

  /** Like `put`, for a frame that may wait some milliseconds to share a message with later frames. */
  putLazily(frame: Frame): void {
    if (this.#closed) return;
    this.#write(frame);
    if (this.#port.later === undefined) this.#wake();
    else if (!this.#scheduled) this.#port.later(this.#onLater);
  }

  /** Like `put`, for a frame that others follow within microseconds: it leaves one turn of the event loop later. */
  putSoon(frame: Frame): void {
    if (this.#closed) return;
    this.#write(frame);
    if (!this.#scheduled) this.#port.schedule(this.#onSoon);
  }

  /** Sends a body on `stream`. Call `kick` after bytes were pushed or the body was finished. */
  attach(stream: number, sender: Sender): void {
    this.#senders.set(stream, { ...sender });
    this.kick(stream);
  }

  detach(stream: number): void {
    this.#senders.delete(stream);
    this.#ready.delete(stream);
  }

  kick(stream: number): void {
    const sender = this.#senders.get(stream);
    if (sender === undefined || sender.over) return;
    if (!sender.outgoing.sendable && !sender.outgoing.drained) return;
    this.#ready.add(stream);
    this.#wake();
  }

  /**
   * Call when `bytes` of DATA payload were passed on or discarded. Grants the socket credit for them when enough have
   * accumulated.
   */
  consumed(bytes: number): void {
    this.#window.consume(bytes);
    const credit = this.#window.credit();
    if (credit !== undefined) this.put({ type: 'credit', stream: 0, ...credit });
  }

  /**
   * Call while no request uses this link. If bytes are still counted as buffered, no reader is left to return their
   * credit. So this grants the credit again, and returns the number of bytes.
   */
  reclaim(): number {
    const lost = this.buffered;
    if (lost !== 0) this.consumed(lost);
    return lost;
  }

  /**
   * Reads a message. DATA is counted against the socket's window before `each` receives it.
   * @throws WireError: the caller closes the socket
   */
  receive(message: Uint8Array, each: (frame: Frame) => void): void {
    if (message.length > MESSAGE_MAX_BYTES)
      throw new WireError('too_large', `message of ${message.length} bytes, at most ${MESSAGE_MAX_BYTES}`);
    this.#meter.begin();
    readFrames(message, (frame) => {
      this.#meter.take(frame.type);
      if (frame.type === 'data') this.#charge(frame.bytes.length);
      if (frame.type === 'credit') this.#credit(frame.stream, frame.consumed, frame.window);
      else each(frame);
    });
  }

  #charge(bytes: number): void {
    // An empty DATA frame uses processing time but no credit, so a peer could send such frames without limit.
    if (bytes === 0) throw new WireError('bad_frame', 'DATA without a byte');
    this.#window.accept(bytes);
  }

  #credit(stream: number, consumed: number, window: number): void {
    if (stream === 0) {
      if (consumed > this.#sent)
        throw new WireError(
          'bad_offset',
          `credit for byte ${consumed} of the socket, but only ${this.#sent} were sent`,
        );
      this.#sendWindow = window;
      this.#sendLimit = Math.max(this.#sendLimit, consumed + window);
      this.#wake();
      return;
    }
    const sender = this.#senders.get(stream);
    if (sender === undefined) return; // The stream ended at this end before the credit arrived.
    sender.outgoing.credit(consumed, window);
    sender.refill?.();
    this.kick(stream);
  }

  #wake(): void {
    if (this.#scheduled || this.#closed) return;
    this.#scheduled = true;
    this.#port.schedule(this.#onTurn);
  }

  readonly #onTurn = (): void => {
    this.#scheduled = false;
    this.flush();
  };

  readonly #onSoon = (): void => {
    if (this.#writer.length > 0) this.#wake();
  };

  readonly #onLater = (): void => this.flush();

  /**
   * Sends everything that the socket and the credit allow. Called at the end of a task, and by the port after its
   * socket has drained.
   */
  flush(): void {
    while (!this.#closed && !this.#port.busy()) {
      if (this.#full.length === 0) this.#fill();
      // `#fill` may have completed messages, which must be sent before the message that it has begun.
      const full = this.#full.shift();
      this.#fullBytes -= full?.length ?? 0;
      if (full === undefined && this.#writer.length === 0) return;
      if (full !== undefined) this.#port.send(full);
      else if (this.#port.copies === true) this.#sendAgain();
      else this.#port.send(this.#takeMessage());
    }
  }

  #sendAgain(): void {
    this.#previous = undefined;
    const { message } = this.#writer;
    this.#writer.again();
    this.#port.send(message);
  }

  /**
   * Streams alternate with one DATA frame each, until the message is full or no stream may send. Streams with few bytes
   * to send go first, so that a token waits neither behind other streams' megabytes nor for credit that those streams
   * used up.
   */
  #fill(): void {
    const blocked: number[] = [];
    for (const stream of this.#ready) if (this.#isSmall(stream) && !this.#turn(stream)) blocked.push(stream);
    for (const stream of this.#ready) {
      if (this.#writer.length >= MESSAGE_TARGET_BYTES) break;
      if (!this.#turn(stream)) blocked.push(stream);
    }
    for (const stream of blocked) this.#ready.add(stream);
  }

  #isSmall(stream: number): boolean {
    const outgoing = this.#senders.get(stream)?.outgoing;
    return this.#writer.length < MESSAGE_TARGET_BYTES && outgoing !== undefined && outgoing.unsent <= SMALL_BYTES;
  }

  /**
   * Sends one frame of one stream, and the frames after its last byte. Returns false if the socket's credit does not
   * allow it.
   */
  #turn(stream: number): boolean {
    this.#ready.delete(stream);
    const sender = this.#senders.get(stream);
    if (sender === undefined) return true;
    if (!this.#sendOne(stream, sender)) return false;
    if (sender.outgoing.sendable) this.#ready.add(stream);
    return true;
  }

  #sendOne(stream: number, sender: Sender & { over?: true }): boolean {
    const { outgoing } = sender;
    if (outgoing.sendable) {
      const kept = outgoing.unsent <= SMALL_BYTES ? 0 : Math.min(RESERVE_BYTES, this.#sendWindow >> 3);
      const room = this.#sendLimit - this.#sent - kept;
      if (room <= 0) return false;
      const piece = outgoing.take(Math.min(DATA_MAX_BYTES, room));
      if (piece !== undefined) {
        this.#sent += piece.bytes.length;
        this.#previous = writeFrame(this.#writer, { type: 'data', stream, ...piece }, this.#previous);
        sender.refill?.();
      }
    }
    if (outgoing.drained && !sender.over) {
      sender.over = true;
      for (const frame of sender.ending()) this.#write(frame);
    }
    return true;
  }

  close(): void {
    this.#closed = true;
    this.#full.length = 0;
    this.#fullBytes = 0;
    this.#senders.clear();
    this.#ready.clear();
  }
}
