import type { TLSSocket } from 'node:tls';
import { TokenBucket } from '../../../shared/collections/token-bucket.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import { FrameMeter } from '../../../shared/wire/frame-limits.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { Link, type LinkPort } from '../../../shared/wire/link.ts';
import { MESSAGE_MAX_BYTES } from '../../../shared/wire/protocol-constants.ts';
import { WireError } from '../../../shared/wire/wire-error.ts';
import { lazyFlush } from '../../tunnel/lazy-flush.ts';
import type { StreamFrame } from '../requests/request-channel.ts';
import type { ChannelPeer, ProvenConnection } from './accept-channel.ts';
import {
  BUFFERED_MAX_BYTES,
  CHANNEL_WINDOW_BYTES,
  GOSSIP_BURST_BYTES,
  GOSSIP_BURST_FRAMES,
  GOSSIP_BYTES_PER_S,
  GOSSIP_FRAMES_PER_S,
  GOSSIP_MAX_BYTES,
  GOSSIP_SKIP_BYTES,
} from './channel-limits.ts';
import { MessageReader, withLengthPrefix } from './length-prefixed-messages.ts';

/**
 * If more bytes than this wait in the socket, the socket counts as busy. Frames then wait in the link, where they can
 * be merged.
 */
const BUSY_BYTES = 256 * 1024;

/**
 * Maximum size of a small gossip message: a probe or its answer. A small message may exceed GOSSIP_SKIP_BYTES, so that
 * a peer still gets probes, and does not look unreachable, while our requests fill the socket.
 */
const SMALL_BYTES = 1024;

/** Time for the peer to close its end after this end closed the channel. */
const LINGER_MS = 1_000;

export interface ChannelEvents {
  onGossip(channel: Channel, bytes: Uint8Array): void;
  /** Called with a frame of a request's stream, or SETTLED. May throw WireError, which closes the channel. */
  onFrame(channel: Channel, frame: StreamFrame): void;
  /** Called when all frames of one message were delivered. */
  onMessageEnd(channel: Channel): void;
  /** Called after a fault of this agent that a peer's message triggered. The channel is then closed. */
  onFault(channel: Channel, error: unknown): void;
  /**
   * Called once. `clean`: one end closed the channel properly. Otherwise the path or the peer's process failed, or the
   * peer broke a rule.
   */
  onClosed(channel: Channel, reason: string, clean: boolean): void;
}

/**
 * One encrypted connection between two agents. Both ends have proven that they hold their session's key. Its link
 * carries gossip and streams of requests in both directions.
 */
export class Channel {
  readonly peer: ChannelPeer;
  /**
   * True if this end dialed. The dialer's streams have odd numbers and the other end's have even ones, so that both
   * ends may open streams.
   */
  readonly dialled: boolean;
  /** The relay through which the channel runs; undefined if the connection is direct. */
  readonly through: string | undefined;
  readonly link: Link;
  readonly #socket: TLSSocket;
  readonly #events: ChannelEvents;
  readonly #reader = new MessageReader(MESSAGE_MAX_BYTES);
  readonly #gossipBytes: TokenBucket;
  readonly #gossipFrames: TokenBucket;
  #busy = false;
  #finished = false;

  /** The socket's handshake must be complete. Call `start` when the receiver of the events is ready. */
  constructor({ socket, peer, through }: ProvenConnection, dialled: boolean, events: ChannelEvents) {
    this.#socket = socket;
    this.peer = peer;
    this.through = through;
    this.dialled = dialled;
    this.#events = events;
    const now = performance.now();
    this.#gossipBytes = new TokenBucket(GOSSIP_BYTES_PER_S, GOSSIP_BURST_BYTES, now);
    this.#gossipFrames = new TokenBucket(GOSSIP_FRAMES_PER_S, GOSSIP_BURST_FRAMES, now);
    const windows = { send: CHANNEL_WINDOW_BYTES, receive: CHANNEL_WINDOW_BYTES };
    this.link = new Link(this.#port(), windows, new FrameMeter(() => performance.now()));
  }

  get session(): string {
    return this.peer.session;
  }

  get provider(): string {
    return this.peer.provider;
  }

  get ticket(): Uint8Array {
    return this.peer.ticket;
  }

  get closed(): boolean {
    return this.#finished;
  }

  /** Number of bytes that wait in the socket because of a slow reader. */
  get waiting(): number {
    return this.#socket.writableLength;
  }

  get remoteAddress(): string {
    return this.#socket.remoteAddress ?? '';
  }

  start(): void {
    this.#socket.setNoDelay(true);
    this.#socket.on('data', (chunk: Buffer) => this.#onData(chunk));
    this.#socket.on('error', (error) => this.#finish(error.message, false));
    this.#socket.on('end', () => this.#finish('the peer closed the connection', false));
    this.#socket.on('close', () => this.#finish('the connection was lost', false));
    if (this.#socket.destroyed) this.#finish('the connection was lost', false);
  }

  #port(): LinkPort {
    return {
      send: (message) => {
        if (!this.#socket.writable) return;
        this.#socket.write(withLengthPrefix(message), () => this.#written());
        this.#busy = this.#socket.writableLength >= BUSY_BYTES;
        if (this.#socket.writableLength > BUFFERED_MAX_BYTES)
          setImmediate(() => this.destroy('the peer does not read'));
      },
      busy: () => this.#busy,
      stuck: () => setImmediate(() => this.destroy('the peer does not read')),
      schedule: (flush) => setImmediate(flush),
      later: lazyFlush(),
    };
  }

  #written(): void {
    if (!this.#busy || this.#socket.writableLength >= BUSY_BYTES / 2) return;
    this.#busy = false;
    this.link.flush();
  }

  /**
   * Sends a gossip message. False if the message was dropped, because too many bytes wait for this peer, because the
   * message is too large, or because the channel is closed.
   */
  gossip(bytes: Uint8Array): boolean {
    if (this.#finished || bytes.length > GOSSIP_MAX_BYTES) return false;
    const room = bytes.length <= SMALL_BYTES ? 2 * GOSSIP_SKIP_BYTES : GOSSIP_SKIP_BYTES;
    if (this.#socket.writableLength >= room) return false;
    this.link.put({ type: 'gossip', bytes });
    return true;
  }

  #onData(chunk: Buffer): void {
    if (this.#finished) return;
    try {
      this.#reader.push(chunk, (message) => this.#onMessage(message));
    } catch (error) {
      // If a peer breaks the protocol, the rest of its message is not read. Any other error is a fault of this agent
      // that a peer's bytes triggered. It must not end the agent, and with it the engine.
      if (!(error instanceof WireError) && !(error instanceof RangeError)) this.#events.onFault(this, error);
      this.close(errorText(error), false);
    }
  }

  #onMessage(message: Uint8Array): void {
    if (this.#finished) return;
    this.link.receive(message, (frame) => this.#onFrame(frame));
    if (!this.#finished) this.#events.onMessageEnd(this);
  }

  #onFrame(frame: Frame): void {
    if (this.#finished) return;
    switch (frame.type) {
      case 'gossip':
        this.#charge(frame.bytes.length);
        return this.#events.onGossip(this, frame.bytes);
      case 'reset':
        if (frame.stream !== 0) return this.#events.onFrame(this, frame);
        return this.#finish(frame.message || 'the peer closed the channel', true);
      case 'record':
      case 'recorded':
      case 'challenge':
      case 'hello':
      case 'welcome':
      case 'usage':
      case 'stored':
      case 'probe':
      case 'probed':
      case 'deploy':
      case 'deployed':
      case 'prefixes':
      case 'rate':
      case 'circuit':
        throw new WireError('bad_state', `${frame.type} between agents`);
      default:
        return this.#events.onFrame(this, frame);
    }
  }

  #charge(bytes: number): void {
    const now = performance.now();
    if (!this.#gossipFrames.take(1, now) || !this.#gossipBytes.take(bytes, now))
      throw new WireError('too_large', 'a flood of gossip');
  }

  /**
   * Sends what the link holds, then the reason, and ends the channel. The peer reads nothing after the reason. Calls
   * `onClosed` immediately. The socket ends when the message is sent. Idempotent.
   */
  close(reason: string, clean = true): void {
    if (this.#finished) return;
    this.link.flush();
    this.link.put({ type: 'reset', stream: 0, code: clean ? 'cancelled' : 'failed', message: reason });
    this.link.flush();
    this.#finish(reason, clean);
  }

  /** Ends the channel without sending a reason. Idempotent. */
  destroy(reason: string): void {
    this.#socket.destroy();
    this.#finish(reason, false);
  }

  #finish(reason: string, clean: boolean): void {
    if (this.#finished) return;
    this.#finished = true;
    this.link.close();
    this.#socket.end();
    const linger = setTimeout(() => this.#socket.destroy(), LINGER_MS);
    this.#socket.once('close', () => clearTimeout(linger));
    this.#events.onClosed(this, reason, clean);
  }
}
