/** An outlet below a public socket, and what a test holds of it: the client's end, workerd's, and the tunnel object's. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { connect as tlsConnect } from 'node:tls';
import { expect } from 'vitest';
import { WebSocket } from 'ws';
import { Outlets } from '../../../gateway/standalone/node/outlet.ts';
import { PublicSocket, type TlsMaterial } from '../../../gateway/standalone/node/public-socket.ts';
import { encodeFrame, readFrames } from '../../../shared/wire/frame-codec.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { atEnd, eventually, temporaryDirectory } from '../../support/processes.ts';

export const SESSION = 'abcdefghijklmnopqrstuvwxyz';
export const STREAM = 2 ** 47 - 19;
export const TOKEN = 'token';
export const GET = 'GET / HTTP/1.1\r\nhost: h\r\n\r\n';
const FALLBACK = 'this front knows no outlets';

/** A socket with all that it received, and how it ended. */
class Peer {
  readonly socket: Socket;
  readonly #below: Socket;
  #chunks: Buffer[] = [];
  ended = false;
  error: NodeJS.ErrnoException | undefined;
  closed = false;

  constructor(socket: Socket, below = socket) {
    this.socket = socket;
    this.#below = below;
    socket.on('data', (chunk: Buffer) => this.#chunks.push(chunk));
    socket.on('end', () => {
      this.ended = true;
    });
    socket.on('error', (error) => {
      this.error = error;
    });
    socket.on('close', () => {
      this.closed = true;
    });
    atEnd(() => {
      socket.destroy();
    });
  }

  /** As a client that crashes, or that has not read all. */
  reset(): void {
    this.#below.resetAndDestroy();
  }

  get bytes(): Buffer {
    this.#chunks = [Buffer.concat(this.#chunks)];
    return this.#chunks[0] ?? Buffer.alloc(0);
  }

  get text(): string {
    return this.bytes.toString('latin1');
  }

  /** Waits for as many bytes and for no more. */
  async expectText(text: string): Promise<void> {
    await eventually('all bytes', 5_000, () => (this.text.length >= text.length ? true : undefined)).catch(() => {});
    expect(this.text).toBe(text);
  }

  async expectAtLeast(text: string): Promise<void> {
    await eventually('its beginning', 5_000, () => (this.text.startsWith(text) ? true : undefined));
  }

  async expectReset(withinMs = 5_000): Promise<void> {
    await eventually('a reset', withinMs, () => (this.closed ? true : undefined));
    expect(this.ended).toBe(false);
    expect(this.error?.code).toBe('ECONNRESET');
  }
}

/** The tunnel object's end of an outlet. */
export class TunnelObject {
  readonly socket: WebSocket;
  /** All but the questions. */
  readonly frames: Frame[] = [];
  /** Streams that nobody has come for yet, as the other end says: CREDIT of nothing. */
  readonly asked: number[] = [];
  closeCode: number | undefined;

  constructor(socket: WebSocket) {
    this.socket = socket;
    socket.on('message', (message: Buffer) => readFrames(message, (frame) => this.#hear(frame)));
    socket.on('close', (code) => {
      this.closeCode = code;
    });
    socket.on('error', () => {});
    atEnd(() => socket.terminate());
  }

  #hear(frame: Frame): void {
    if (frame.type === 'credit' && frame.consumed + frame.window === 0) this.asked.push(frame.stream);
    else this.frames.push(frame);
  }

  send(...frames: Frame[]): void {
    for (const frame of frames) this.socket.send(encodeFrame(frame));
  }

  announce(stream = STREAM): void {
    this.send({ type: 'accept', stream, bodyOffset: 0, bodyDone: false });
  }

  data(offset: number, bytes: string | Buffer, stream = STREAM): void {
    this.send({ type: 'data', stream, offset, bytes: Buffer.from(bytes) });
  }

  /** Tokens of the announced stream, as many as go in that time; how many they were. */
  async tokensFor(ms: number): Promise<number> {
    let tokens = 0;
    const begun = performance.now();
    await eventually(`${ms} ms of tokens`, ms + 5_000, () => {
      this.data(tokens++ * TOKEN.length, TOKEN);
      return performance.now() - begun > ms ? true : undefined;
    });
    return tokens;
  }

  end(offset: number, stream = STREAM): void {
    this.send({ type: 'end', stream, offset });
  }

  /** The next frame of that type. */
  frame<T extends Frame['type']>(type: T, stream = STREAM, withinMs = 5_000): Promise<Extract<Frame, { type: T }>> {
    const wanted = (frame: Frame): frame is Extract<Frame, { type: T }> =>
      frame.type === type && 'stream' in frame && frame.stream === stream;
    return eventually(`${type} of ${stream}`, withinMs, () => this.frames.find(wanted));
  }
}

export class House {
  readonly outlets = new Outlets();
  readonly upstreams: Peer[] = [];
  #publicSocket: PublicSocket | undefined;
  #directory = '';
  #port = 0;

  async open(tls?: TlsMaterial): Promise<this> {
    this.#directory = await temporaryDirectory();
    const path = join(this.#directory, 'workerd.sock');
    const server = createServer((socket) => this.upstreams.push(new Peer(socket)));
    await once(server.listen(path), 'listening');
    await this.outlets.listen(join(this.#directory, 'outlet.sock'));
    const publicSocket = new PublicSocket({ path, tls, outlets: this.outlets });
    this.#publicSocket = publicSocket;
    this.#port = await publicSocket.listen(0, '127.0.0.1');
    atEnd(async () => {
      await publicSocket.close(0);
      await this.outlets.close();
      server.close();
    });
    return this;
  }

  drain(ms: number): Promise<void> | undefined {
    return this.#publicSocket?.close(ms);
  }

  dial(path = '/outlet', secret = this.outlets.secret, session = SESSION): WebSocket {
    const headers = { 'x-otela-outlet': secret, 'x-otela-session': session };
    return new WebSocket(`ws+unix://${join(this.#directory, 'outlet.sock')}:${path}`, { headers });
  }

  async object(): Promise<TunnelObject> {
    const object = new TunnelObject(this.dial());
    await once(object.socket, 'open');
    return object;
  }

  async client(secure = false): Promise<Peer> {
    const below = connect({ port: this.#port, host: '127.0.0.1' });
    const socket = secure ? tlsConnect({ socket: below, rejectUnauthorized: false }) : below;
    await once(socket, secure ? 'secureConnect' : 'connect');
    return new Peer(socket, below);
  }

  /** A client whose request arrived, and workerd's side of its connection. */
  async exchange(request = GET, secure = false): Promise<{ client: Peer; upstream: Peer }> {
    const before = this.upstreams.length;
    const client = await this.client(secure);
    client.socket.write(request);
    const upstream = await eventually('the request', 5_000, () =>
      this.upstreams.slice(before).find(({ text }) => text === request),
    );
    return { client, upstream };
  }

  marked(first = '', stream = STREAM, more = ''): string {
    const body = first + FALLBACK;
    const marker = `X-Otela-Outlet: ${this.outlets.secret} ${SESSION} ${stream} ${first.length}`;
    return `HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n${marker}\r\nContent-Type: text/event-stream\r\n${more}\r\n${body}`;
  }

  /** A client whose stream is taken. */
  async taken(first = ''): Promise<{ object: TunnelObject; client: Peer; upstream: Peer }> {
    const object = await this.object();
    const { client, upstream } = await this.exchange();
    object.announce();
    upstream.socket.write(this.marked(first));
    await object.frame('credit');
    return { object, client, upstream };
  }
}

export const HEAD = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n';
export const plain = (body: string) => `HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
