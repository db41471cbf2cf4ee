/**
 * Where answers leave without passing workerd's HTTP: tunnel objects send them here over one WebSocket each, and they are written to the
 * clients, which this process has anyway. workerd's part of such an answer is a head that names it (as nginx does with
 * X-Accel-Redirect): `x-otela-outlet: SECRET SESSION STREAM LENGTH`.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { Duplex } from 'node:stream';
import { WebSocketServer } from 'ws';
import { TransientMap } from '../../../shared/collections/transient-map.ts';
import type { Outflow } from './outflow.ts';
import { OutletChannel } from './outlet-channel.ts';
import { Mark } from './outlet-marker.ts';
import { patiently } from './patiently.ts';

const MESSAGE_MAX_BYTES = 16 * 1024 * 1024;
/** The head and the announcement come over two sockets, in any order. */
const ANNOUNCEMENT_MS = 5_000;
const SESSION = /^[a-z2-7]{26}$/;

interface Waiting {
  /** None: its client has left. */
  outflow: Outflow | undefined;
  forget(): void;
}

export class Outlets {
  /** Known to the Worker and to nobody outside: 32 hex digits. */
  readonly secret = randomBytes(16).toString('hex');
  readonly mark = new Mark(this.secret);
  readonly #server: Server;
  readonly #webSockets = new WebSocketServer({
    noServer: true,
    perMessageDeflate: false,
    maxPayload: MESSAGE_MAX_BYTES,
  });
  /** By session, the newest last. */
  readonly #channels = new Map<string, OutletChannel[]>();
  /** Connections where answers wait behind another one: what is announced may be among them, however late. */
  readonly holdingBack = new Set<object>();
  /** Clients whose stream is not announced yet. */
  readonly #waiting = new TransientMap<string, Waiting>();
  #path: string | undefined;

  constructor() {
    this.#server = createServer((_request, response) => response.writeHead(404).end());
    this.#server.on('upgrade', (request, socket, head) => this.#upgrade(request, socket, head));
  }

  /** On a Unix socket; a file that is left there is removed. Rejects as `net.Server` does. */
  async listen(path: string): Promise<void> {
    this.#path = path;
    await rm(path, { force: true });
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(path, () => {
        this.#server.removeListener('error', reject);
        this.#server.on('error', (error) => console.error(`outlet: ${error.message}`));
        resolve();
      });
    });
  }

  /** Gives the stream to `outflow` when it is announced, or breaks it when that does not happen. */
  take(session: string, stream: number, outflow: Outflow): void {
    const channel = this.#channels.get(session)?.findLast((each) => each.has(stream));
    if (channel !== undefined) return channel.take(stream, outflow);
    const name = `${session} ${stream}`;
    if (this.#waiting.has(name)) return outflow.break();
    const forget = patiently(ANNOUNCEMENT_MS, () => {
      const left = this.#waiting.get(name)?.outflow === undefined;
      this.#waiting.delete(name);
      if (!left) outflow.break();
    });
    this.#waiting.set(name, { outflow, forget });
    // Its client may leave; the stream is refused when it is announced.
    outflow.wait(() => this.#waiting.set(name, { outflow: undefined, forget }));
  }

  /** The client of the stream has left. */
  refuse(session: string, stream: number): void {
    const channel = this.#channels.get(session)?.findLast((each) => each.has(stream));
    if (channel !== undefined) return channel.refuse(stream);
    const name = `${session} ${stream}`;
    if (this.#waiting.has(name)) return;
    const forget = patiently(ANNOUNCEMENT_MS, () => this.#waiting.delete(name));
    this.#waiting.set(name, { outflow: undefined, forget });
  }

  /** Ends everything; clients whose answer was on its way are reset. Idempotent. */
  async close(): Promise<void> {
    for (const channel of [...this.#channels.values()].flat()) channel.terminate();
    this.#server.close();
    this.#server.closeAllConnections();
    for (const { outflow, forget } of this.#waiting.values()) {
      forget();
      outflow?.break();
    }
    this.#waiting.clear();
    if (this.#path !== undefined) await rm(this.#path, { force: true });
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on('error', () => socket.destroy());
    const session = request.headers['x-otela-session'];
    if (!this.#isSecret(request.headers['x-otela-outlet'])) return deny(socket, '403 Forbidden');
    if (request.url !== '/outlet') return deny(socket, '404 Not Found');
    if (typeof session !== 'string' || !SESSION.test(session)) return deny(socket, '400 Bad Request');
    this.#webSockets.handleUpgrade(request, socket, head, (webSocket) => {
      const channel: OutletChannel = new OutletChannel(webSocket, {
        session,
        announced: (stream) => this.#announced(channel, stream),
        isHeldBack: () => this.holdingBack.size > 0,
        closed: () => this.#closed(channel),
      });
      this.#channels.set(session, [...(this.#channels.get(session) ?? []), channel]);
    });
  }

  #isSecret(given: string | string[] | undefined): boolean {
    const bytes = Buffer.from(typeof given === 'string' ? given : '');
    return bytes.length === this.mark.secret.length && timingSafeEqual(bytes, this.mark.secret);
  }

  #announced(channel: OutletChannel, stream: number): void {
    const name = `${channel.session} ${stream}`;
    const waiting = this.#waiting.get(name);
    if (waiting === undefined) return;
    this.#waiting.delete(name);
    waiting.forget();
    if (waiting.outflow === undefined) channel.refuse(stream);
    else channel.take(stream, waiting.outflow);
  }

  #closed(channel: OutletChannel): void {
    const left = this.#channels.get(channel.session)?.filter((each) => each !== channel) ?? [];
    if (left.length === 0) this.#channels.delete(channel.session);
    else this.#channels.set(channel.session, left);
  }
}

function deny(socket: Duplex, status: string): void {
  socket.end(`HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`, () => socket.destroy());
}
