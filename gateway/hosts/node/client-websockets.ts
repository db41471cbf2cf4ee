/** WebSockets of clients on the Node host, through `ws`. */
import { type RawData, WebSocket } from 'ws';
import { closeRecord, type MessageRecord } from '../../../shared/openai/realtime/message-records.ts';
import {
  CLIENT_SOCKET_WAITING_MAX_BYTES,
  type ClientWebSocket,
  type ClientWebSockets,
} from '../../http/client-websocket.ts';
import { withUpgrade } from './node-sockets.ts';

/** The code of `ws` for a connection that ended without a close frame. */
const ABNORMAL = 1006;

class NodeClientSocket implements ClientWebSocket {
  readonly opened: Promise<boolean>;
  onBroken = (): void => {};
  #settleOpened: (opened: boolean) => void = () => {};
  #connection: WebSocket | undefined;
  /** Messages that nothing has read. Above CLIENT_SOCKET_WAITING_MAX_BYTES the connection is not read. */
  #waiting: MessageRecord[] = [];
  #waitingBytes = 0;
  #ended = false;
  #wake: (() => void) | undefined;

  constructor() {
    this.opened = new Promise((resolve) => {
      this.#settleOpened = resolve;
    });
  }

  accept(headers: Record<string, string>): Response {
    return withUpgrade(new Response(null, { status: 200 }), { socket: this, headers, client: true });
  }

  attach(connection: WebSocket): void {
    this.#connection = connection;
    connection.binaryType = 'nodebuffer';
    connection.on('message', (data, isBinary) => this.#onMessage(data, isBinary));
    connection.on('error', () => {}); // the event 'close' follows
    connection.on('close', (code, reason) => this.#onClose(code, reason.toString()));
    this.#settleOpened(true);
  }

  /** Called when the upgrade was handled. If the handshake failed, no connection was attached. */
  settle(): void {
    if (this.#connection !== undefined) return;
    this.#settleOpened(false);
    this.#onClose(ABNORMAL, '');
  }

  #onMessage(data: RawData, isBinary: boolean): void {
    if (!Buffer.isBuffer(data) || this.#ended) return;
    this.#add({ kind: isBinary ? 'binary' : 'text', bytes: new Uint8Array(data) });
    if (this.#waitingBytes > CLIENT_SOCKET_WAITING_MAX_BYTES) this.#connection?.pause();
  }

  #add(record: MessageRecord): void {
    this.#waiting.push(record);
    this.#waitingBytes += record.bytes.length + 1; // An empty message takes memory, too.
    this.#wake?.();
  }

  #onClose(code: number, reason: string): void {
    if (this.#ended) return;
    this.#ended = true;
    if (code === ABNORMAL) this.onBroken();
    else this.#add(closeRecord(code, reason));
    this.#wake?.();
  }

  async next(): Promise<MessageRecord | undefined> {
    while (this.#waiting.length === 0 && !this.#ended) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    this.#wake = undefined;
    const record = this.#waiting.shift();
    if (record !== undefined) this.#waitingBytes -= record.bytes.length + 1;
    const connection = this.#connection;
    if (connection?.isPaused === true && this.#waitingBytes < CLIENT_SOCKET_WAITING_MAX_BYTES / 2) connection.resume();
    return record;
  }

  send({ kind, bytes }: MessageRecord): Promise<void> | undefined {
    const connection = this.#connection;
    if (connection?.readyState !== WebSocket.OPEN) throw new Error('the client’s WebSocket is closed');
    const sent = new Promise<void>((resolve, reject) => {
      connection.send(bytes, { binary: kind === 'binary' }, (error) => (error ? reject(error) : resolve()));
    });
    sent.catch(() => {}); // if nothing waits for it, the event 'close' reports the failure
    return connection.bufferedAmount > CLIENT_SOCKET_WAITING_MAX_BYTES ? sent : undefined;
  }

  close(code: number, reason: string): void {
    this.#connection?.close(code, reason);
    this.#connection?.resume(); // otherwise the client's close frame would not be read
  }
}

export const nodeClientWebSockets: ClientWebSockets = { create: () => new NodeClientSocket() };
