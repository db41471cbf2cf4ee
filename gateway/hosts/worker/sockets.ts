import { within } from '../../../shared/collections/within.ts';
import { PING_TEXT, PONG_TEXT } from '../../../shared/wire/heartbeat.ts';
import type { ObjectHandlers } from '../../gateway-object.ts';
import type { ObjectSocket, ObjectSockets } from '../../object-context.ts';

/** Heartbeats come every 15 s. A peer that sends more of them and reads nothing gets no more answers than these wait for it. */
const ANSWERED_EVERY_MS = 100;

/** The runtime's socket: the same object, which its callers know as less. */
function native(socket: ObjectSocket): WebSocket {
  return socket as WebSocket;
}

function pair(headers: Record<string, string> | undefined): { server: WebSocket; response: Response } {
  const { 0: client, 1: server } = new WebSocketPair();
  return { server, response: new Response(null, { status: 101, webSocket: client, ...(headers && { headers }) }) };
}

/** Not queueMicrotask: workerd's makes an object of its own for each call. */
function soon(flush: () => void): void {
  void Promise.resolve().then(flush);
}

/** The object may sleep, and even move, while its sockets stay. Each message is an event that can wake it. */
export class HibernatingSockets implements ObjectSockets {
  readonly #state: DurableObjectState;

  constructor(state: DurableObjectState) {
    this.#state = state;
    state.setWebSocketAutoResponse(new WebSocketRequestResponsePair(PING_TEXT, PONG_TEXT));
  }

  accept(headers?: Record<string, string>): { socket: ObjectSocket; response: Response } {
    const { server, response } = pair(headers);
    this.#state.acceptWebSocket(server);
    return { socket: server, response };
  }

  survivors(): ObjectSocket[] {
    return this.#state.getWebSockets();
  }

  note(socket: ObjectSocket, attachment: unknown): void {
    native(socket).serializeAttachment(attachment);
  }

  noted(socket: ObjectSocket): unknown {
    return native(socket).deserializeAttachment();
  }

  pingedAt(socket: ObjectSocket): number {
    return this.#state.getWebSocketAutoResponseTimestamp(native(socket))?.getTime() ?? 0;
  }

  schedule(flush: () => void): void {
    soon(flush);
  }
}

/** The object lives as long as its sockets: a message is a call and no event, which costs half the garbage and a tenth of the time. */
export class AwakeSockets implements ObjectSockets {
  readonly #handlers: ObjectHandlers;
  readonly #pings = new WeakMap<ObjectSocket, number>();

  constructor(handlers: ObjectHandlers) {
    this.#handlers = handlers;
  }

  accept(headers?: Record<string, string>): { socket: ObjectSocket; response: Response } {
    const { server: socket, response } = pair(headers);
    socket.binaryType = 'arraybuffer';
    socket.accept();
    socket.addEventListener('message', ({ data }) => {
      if (data !== PING_TEXT) return this.#handlers.webSocketMessage?.(socket, data);
      const now = Date.now();
      if (within(ANSWERED_EVERY_MS, this.pingedAt(socket), now) || socket.readyState !== WebSocket.OPEN) return;
      this.#pings.set(socket, now);
      socket.send(PONG_TEXT);
    });
    const gone = () => this.#handlers.webSocketClose?.(socket);
    socket.addEventListener('close', gone);
    socket.addEventListener('error', gone);
    return { socket, response };
  }

  survivors(): ObjectSocket[] {
    return [];
  }

  note(): void {
    // With the object its sockets end: there is no next life to write for.
  }

  noted(): unknown {
    return null;
  }

  pingedAt(socket: ObjectSocket): number {
    return this.#pings.get(socket) ?? 0;
  }

  schedule(flush: () => void): void {
    soon(flush);
  }
}
