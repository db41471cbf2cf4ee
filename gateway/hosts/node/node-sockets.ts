import type { Duplex } from 'node:stream';
import type { RawData } from 'ws';
import { isRecent } from '../../../shared/timing/is-recent.ts';
import { PING_TEXT, PONG_TEXT } from '../../../shared/wire/heartbeat.ts';
import type { ObjectHandlers } from '../../platform/gateway-object.ts';
import type { ObjectSocket, ObjectSockets } from '../../platform/object-context.ts';
import type { Gate } from './output-gate.ts';

/**
 * Minimum interval between replies to heartbeats. Honest agents send at most one heartbeat in 15 s. The interval bounds the
 * replies that wait for an agent that sends many heartbeats and reads nothing.
 */
const ANSWERED_EVERY_MS = 100;
/** Maximum messages that an object may send before the handshake is over, such as a challenge. */
const EARLY_MAX = 16;
/** Close code for a server that restarts (IANA's registry for RFC 6455 §7.4.1). */
const RESTART = 1012;

const [CONNECTING, OPEN, CLOSED] = [0, 1, 3];

/** A whole unmasked text message (RFC 6455 §5.2): FIN and opcode 1, the length, the text. */
const PONG_FRAME = Buffer.from([0x81, PONG_TEXT.length, ...Buffer.from(PONG_TEXT)]);

/** The part of a WebSocket of `ws` that an object's socket needs. */
export interface SocketConnection {
  binaryType?: string;
  readonly readyState: number;
  on(event: 'message', listener: (data: RawData, isBinary: boolean) => void): unknown;
  on(event: 'close' | 'error', listener: () => void): unknown;
  send(message: string | Uint8Array): void;
  close(code?: number, reason?: string): void;
}

/** A socket with a pending handshake. */
interface PendingSocket {
  /**
   * Connects the socket after the handshake.
   * @param raw the TCP or TLS connection below `connection`, if there is one
   */
  attach(connection: SocketConnection, raw?: Duplex): void;
  /** Called when the upgrade was handled. If the handshake failed, no connection was attached. */
  settle(): void;
}

interface PendingUpgrade {
  socket: PendingSocket;
  headers: Record<string, string>;
  /** True for a WebSocket of a client, false for an agent's. */
  client?: true;
}

/** Sockets whose handshake is pending, by the response that the object returned. */
const upgrades = new WeakMap<Response, PendingUpgrade>();

/** Returns the pending upgrade, if `response` accepts one. */
export function upgradeOf(response: Response): PendingUpgrade | undefined {
  return upgrades.get(response);
}

/** Makes `response` accept an upgrade. */
export function withUpgrade(response: Response, upgrade: PendingUpgrade): Response {
  upgrades.set(response, upgrade);
  return response;
}

interface SocketEvents {
  message(socket: NodeSocket, message: string | Uint8Array): void;
  close(socket: NodeSocket): void;
}

/**
 * An object's end of a WebSocket. It is created before the handshake; messages that the object sends earlier are
 * delivered after the handshake.
 */
class NodeSocket implements ObjectSocket {
  readonly #gate: Gate;
  readonly #on: SocketEvents;
  #connection: SocketConnection | undefined;
  #raw: Duplex | undefined;
  #early: (string | Uint8Array)[] = [];
  #closing: { code: number | undefined; reason: string | undefined } | undefined;
  #finished = false;
  pingedAt = 0;

  constructor(gate: Gate, on: SocketEvents) {
    this.#gate = gate;
    this.#on = on;
  }

  get readyState(): number {
    if (this.#finished || this.#closing !== undefined) return CLOSED;
    return this.#connection?.readyState ?? CONNECTING;
  }

  attach(connection: SocketConnection, raw?: Duplex): void {
    this.#connection = connection;
    this.#raw = raw;
    connection.binaryType = 'nodebuffer'; // 'arraybuffer' would copy each message
    connection.on('message', (data, isBinary) => this.#onMessage(data, isBinary));
    connection.on('close', () => this.#end());
    connection.on('error', () => {}); // the event 'close' follows
    for (const message of this.#early) connection.send(message);
    this.#early = [];
    if (this.#closing !== undefined) connection.close(this.#closing.code, this.#closing.reason);
  }

  /**
   * Called when the upgrade was handled. If the handshake failed, reports the socket's end to the object, because no
   * connection would report it.
   */
  settle(): void {
    if (this.#connection === undefined) this.#end();
  }

  #onMessage(data: RawData, isBinary: boolean): void {
    if (this.#finished) return;
    const buffer = data as Buffer;
    // A plain view, because `subarray` of a Buffer is slower, and `slice` of a Buffer is not a copy.
    if (isBinary) return this.#on.message(this, new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.length));
    const text = buffer.toString();
    if (text !== PING_TEXT) return this.#on.message(this, text);
    const now = Date.now();
    if (isRecent(ANSWERED_EVERY_MS, this.pingedAt, now)) return;
    this.pingedAt = now;
    if (this.#connection?.readyState !== OPEN) return;
    // Pongs are most of the work for idle agents, and `ws` would take longer to frame each.
    if (this.#raw === undefined) this.#connection.send(PONG_TEXT);
    else this.#raw.write(PONG_FRAME);
  }

  send(message: string | Uint8Array): void {
    if (this.#finished || this.#closing !== undefined) throw new Error('the socket is closed');
    this.#gate.pass(() => this.#write(message));
  }

  #write(message: string | Uint8Array): void {
    const connection = this.#connection;
    if (connection === undefined) {
      if (this.#early.length < EARLY_MAX) this.#early.push(message);
    } else if (connection.readyState === OPEN) connection.send(message);
  }

  close(code?: number, reason?: string): void {
    if (this.#finished || this.#closing !== undefined) return;
    this.#closing = { code, reason };
    this.#gate.pass(() => this.#connection?.close(code, reason));
  }

  /** Closes the connection without calling the object, which is gone. */
  abort(): void {
    this.#finished = true;
    this.#connection?.close(RESTART, 'the gateway lost the state of this socket');
  }

  #end(): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#on.close(this);
  }
}

/** The sockets of one object. They keep the object alive, so nothing has to outlive its memory. */
export class NodeSockets implements ObjectSockets {
  readonly #gate: Gate;
  readonly #handlers: () => ObjectHandlers;
  readonly #guard: (work: () => void) => void;
  readonly #sockets = new Set<NodeSocket>();

  /** `guard` runs a handler of the object, and resets the object if the handler throws. */
  constructor(gate: Gate, handlers: () => ObjectHandlers, guard: (work: () => void) => void) {
    this.#gate = gate;
    this.#handlers = handlers;
    this.#guard = guard;
  }

  get size(): number {
    return this.#sockets.size;
  }

  accept(headers: Record<string, string> = {}): { socket: ObjectSocket; response: Response } {
    const socket = new NodeSocket(this.#gate, {
      message: (one, message) => this.#guard(() => this.#handlers().webSocketMessage?.(one, message)),
      close: (one) => {
        this.#sockets.delete(one);
        this.#guard(() => this.#handlers().webSocketClose?.(one));
      },
    });
    this.#sockets.add(socket);
    return { socket, response: withUpgrade(new Response(null, { status: 200 }), { socket, headers }) };
  }

  survivors(): ObjectSocket[] {
    return [];
  }

  note(): void {
    // The sockets end with the object, so there is nothing to save for another instance.
  }

  noted(): unknown {
    return null;
  }

  pingedAt(socket: ObjectSocket): number {
    return socket instanceof NodeSocket ? socket.pingedAt : 0;
  }

  /**
   * Calls `flush` after everything that the event loop has read in this turn, so that sixty requests that arrive
   * together become one message to the agent.
   */
  schedule(flush: () => void): void {
    setImmediate(() => this.#guard(flush));
  }

  /** Closes all connections, because the object is gone. */
  abort(): void {
    for (const socket of this.#sockets) socket.abort();
    this.#sockets.clear();
  }
}
