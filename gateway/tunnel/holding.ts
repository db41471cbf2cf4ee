import { PING_TEXT, PONG_TEXT } from '../../shared/wire/heartbeat.ts';
import type { Env } from '../env.ts';
import type { SocketAttachment } from './socket.ts';

/** Heartbeats come every 15 s. Whoever sends more and reads nothing gets no more answers than these wait for it. */
const ANSWERED_EVERY_MS = 100;

/** How an object holds the sockets of its agents. */
export interface Holding {
  /** Takes a socket over: what comes on it, and its end, come to the object as the runtime's hibernation would bring them. */
  take(socket: WebSocket): void;
  /** Those that outlived the object's memory. */
  survivors(): WebSocket[];
  /** What the object's next life has to know of a socket. */
  note(socket: WebSocket, attachment: SocketAttachment): void;
  /** When its last heartbeat came; milliseconds since the epoch, 0: none. */
  pingedAt(socket: WebSocket): number;
}

/** What an object does with its sockets. */
interface SocketHandler {
  webSocketMessage(socket: WebSocket, message: string | ArrayBuffer): void;
  webSocketClose(socket: WebSocket): void;
}

export function holdingFor(ctx: DurableObjectState, env: Env, handler: SocketHandler): Holding {
  return env.OBJECTS_STAY === 'on' ? new Awake(handler) : new Asleep(ctx);
}

/** The object may sleep, and even move, while its sockets stay; the runtime answers their heartbeats. Each message is an event that could wake it. */
class Asleep implements Holding {
  readonly #ctx: DurableObjectState;

  constructor(ctx: DurableObjectState) {
    this.#ctx = ctx;
    ctx.setWebSocketAutoResponse(new WebSocketRequestResponsePair(PING_TEXT, PONG_TEXT));
  }

  take(socket: WebSocket): void {
    this.#ctx.acceptWebSocket(socket);
  }

  survivors(): WebSocket[] {
    return this.#ctx.getWebSockets();
  }

  note(socket: WebSocket, attachment: SocketAttachment): void {
    socket.serializeAttachment(attachment);
  }

  pingedAt(socket: WebSocket): number {
    return this.#ctx.getWebSocketAutoResponseTimestamp(socket)?.getTime() ?? 0;
  }
}

/** The object lives as long as its sockets, so that a message costs a call and no event: half the garbage of a token, a tenth of its time. */
class Awake implements Holding {
  readonly #handler: SocketHandler;
  readonly #pings = new WeakMap<WebSocket, number>();

  constructor(handler: SocketHandler) {
    this.#handler = handler;
  }

  take(socket: WebSocket): void {
    socket.binaryType = 'arraybuffer';
    socket.accept();
    socket.addEventListener('message', ({ data }) => {
      if (data !== PING_TEXT) return this.#handler.webSocketMessage(socket, data);
      const now = Date.now();
      if (now - this.pingedAt(socket) < ANSWERED_EVERY_MS || socket.readyState !== WebSocket.OPEN) return;
      this.#pings.set(socket, now);
      socket.send(PONG_TEXT);
    });
    const gone = () => this.#handler.webSocketClose(socket);
    socket.addEventListener('close', gone);
    socket.addEventListener('error', gone);
  }

  survivors(): WebSocket[] {
    return [];
  }

  note(): void {
    // There is no next life: with the object its sockets end.
  }

  pingedAt(socket: WebSocket): number {
    return this.#pings.get(socket) ?? 0;
  }
}
