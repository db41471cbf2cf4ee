import { neverRejects } from '../../../shared/timing/in-background.ts';
import { PING_TEXT, PONG_TEXT } from '../../../shared/wire/heartbeat.ts';
import type { ObjectSocket, ObjectSockets } from '../../platform/object-context.ts';

/** Returns the runtime's socket. It is the same object; callers see it through a smaller interface. */
function native(socket: ObjectSocket): WebSocket {
  return socket as WebSocket;
}

function pair(headers: Record<string, string> | undefined): { server: WebSocket; response: Response } {
  const { 0: client, 1: server } = new WebSocketPair();
  return { server, response: new Response(null, { status: 101, webSocket: client, ...(headers && { headers }) }) };
}

/**
 * Schedules `flush` at the end of the turn. queueMicrotask is not used, because workerd's version allocates an object
 * for each call.
 */
function soon(flush: () => void): void {
  neverRejects(Promise.resolve().then(flush));
}

/**
 * Sockets of a Durable Object. The object may hibernate, and even move, while its sockets stay open. Each message is an
 * event that can wake it.
 */
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
