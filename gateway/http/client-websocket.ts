/** A client's WebSocket, which a host accepts for the app. */
import type { MessageRecord } from '../../shared/openai/realtime/message-records.ts';

/** Maximum bytes that wait in memory in each direction before the sender is paused. */
export const CLIENT_SOCKET_WAITING_MAX_BYTES = 256 * 1024;

export interface ClientWebSocket {
  /** Resolves when the handshake is complete. False: the client disconnected before. */
  readonly opened: Promise<boolean>;
  /** Called once if the connection broke without a close frame. */
  onBroken: () => void;
  /** The next message or close frame; undefined after the last. */
  next(): Promise<MessageRecord | undefined>;
  /** Sends a text or binary message. Resolves when the client's side can take more. @throws Error if it is closed */
  send(record: MessageRecord): Promise<void> | void;
  close(code: number, reason: string): void;
  /** Returns the response that accepts the WebSocket. Without it, nothing is accepted. */
  accept(headers: Record<string, string>): Response;
}

/** Makes sockets for clients. Absent in Env: this host accepts no WebSockets of clients. */
export interface ClientWebSockets {
  create(): ClientWebSocket;
}
