/** A gateway's end of the tunnel, played by the test: honest or hostile as needed. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type WebSocket, WebSocketServer } from 'ws';
import { readFrames } from '../../../shared/wire/frame-codec.ts';
import { FrameMeter } from '../../../shared/wire/frame-limits.ts';
import type { Frame, OpenFrame } from '../../../shared/wire/frames.ts';
import { Link } from '../../../shared/wire/link.ts';
import { SOCKET_WINDOW_BYTES } from '../../../shared/wire/protocol-constants.ts';
import { eventually } from '../processes.ts';

type FrameOf<T extends Frame['type']> = Extract<Frame, { type: T }>;

/** One agent's socket. */
export class HandSocket {
  readonly socket: WebSocket;
  readonly link: Link;
  readonly frames: Frame[] = [];
  /** True: the test writes DATA itself, and no link accounts for credit. */
  byHand = false;
  readonly closed: Promise<{ code: number; reason: string }>;

  constructor(socket: WebSocket) {
    this.socket = socket;
    this.link = new Link(
      {
        send: (message) => socket.send(message),
        busy: () => false,
        schedule: (flush) => queueMicrotask(flush),
        stuck: () => socket.terminate(),
      },
      { send: 0, receive: SOCKET_WINDOW_BYTES },
      new FrameMeter(() => performance.now()),
    );
    socket.on('message', (data: Buffer, binary: boolean) => {
      if (!binary) return socket.send('otela:pong');
      readFrames(data, (frame) => this.frames.push(frame));
      if (!this.byHand) this.link.receive(data, () => undefined);
    });
    socket.on('error', () => undefined);
    this.closed = once(socket, 'close').then(([code, reason]) => ({ code: Number(code), reason: String(reason) }));
  }

  put(...frames: Frame[]): void {
    for (const frame of frames) this.link.put(frame);
  }

  all<T extends Frame['type']>(type: T, stream?: number): FrameOf<T>[] {
    return this.frames.filter(
      (frame): frame is FrameOf<T> =>
        frame.type === type && (stream === undefined || ('stream' in frame && frame.stream === stream)),
    );
  }

  /** Resolves with the first frame of this type, past or future. */
  when<T extends Frame['type']>(type: T, stream?: number, withinMs = 5_000): Promise<FrameOf<T>> {
    return eventually(`${type} on ${stream ?? 'any stream'}`, withinMs, () => this.all(type, stream)[0]);
  }

  /** Completes the handshake: challenge, hello, welcome. */
  async greet(): Promise<FrameOf<'hello'>> {
    this.put({ type: 'challenge', nonce: new Uint8Array(32) });
    const hello = await this.when('hello');
    this.put({ type: 'welcome', window: SOCKET_WINDOW_BYTES, gateway: 'gw:test' });
    await Promise.resolve(); // the welcome must be a separate message
    this.link.open(hello.window);
    await this.when('record');
    return hello;
  }

  /** Number of bytes in all received DATA frames. */
  get answerBytes(): number {
    return this.all('data').reduce((sum, { bytes }) => sum + bytes.length, 0);
  }
}

export class HandGateway {
  readonly #server: Server;
  readonly #sockets: HandSocket[] = [];
  readonly port: number;
  /** If set, responds to the next upgrades instead of accepting them. */
  refuse: ((request: IncomingMessage, response: ServerResponse) => void) | undefined;
  upgrades = 0;
  /** Highest frame type that the gateway announces at the upgrade; undefined: it announces none. */
  reads: number | undefined;
  /** The header with which the gateway limits the tail that the agent keeps; undefined: it sends none. */
  tail: string | undefined;

  private constructor(server: Server, port: number) {
    this.#server = server;
    this.port = port;
  }

  static async open(): Promise<HandGateway> {
    const server = createServer((request, response) => gateway.#respond(request, response));
    const sockets = new WebSocketServer({ noServer: true, perMessageDeflate: false });
    sockets.on('headers', (headers) => {
      if (gateway.reads !== undefined) headers.push(`x-otela-frames: ${gateway.reads}`);
      if (gateway.tail !== undefined) headers.push(`x-otela-retained-tail: ${gateway.tail}`);
    });
    server.on('upgrade', (request, socket, head) => {
      gateway.upgrades++;
      if (gateway.refuse !== undefined) {
        // The test writes the response to the upgrade itself: node:http has no response object here.
        return void server.emit('refused', request, socket);
      }
      sockets.handleUpgrade(request, socket, head, (ws) => gateway.#sockets.push(new HandSocket(ws)));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const gateway = new HandGateway(server, typeof address === 'object' && address !== null ? address.port : 0);
    return gateway;
  }

  #respond(request: IncomingMessage, response: ServerResponse): void {
    if (this.refuse !== undefined) return this.refuse(request, response);
    response.writeHead(404).end();
  }

  /** Answers the next upgrades with these bytes, and then ends or resets the connection. */
  answerUpgrades(bytes: string, then: 'end' | 'reset'): void {
    this.refuse = () => undefined;
    this.#server.on('refused', (_request, socket) => {
      socket.write(bytes, () => (then === 'end' ? socket.end() : setTimeout(() => socket.resetAndDestroy(), 50)));
    });
  }

  takeUpgrades(): void {
    this.refuse = undefined;
  }

  get url(): URL {
    return new URL(`http://127.0.0.1:${this.port}`);
  }

  /** The n-th accepted socket, from 0. */
  socket(n: number, withinMs = 5_000): Promise<HandSocket> {
    return eventually(`socket ${n}`, withinMs, () => this.#sockets[n]);
  }

  get connections(): number {
    return this.#sockets.length;
  }

  async close(): Promise<void> {
    for (const { socket } of this.#sockets) socket.terminate();
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** An opening of chat/completions, non-streaming by default. */
export function openingFrame(stream: number, more: Partial<OpenFrame> = {}): OpenFrame {
  return {
    type: 'open',
    stream,
    resume: false,
    requestId: `request-${stream}`,
    attempt: 1,
    answerOffset: 0,
    endpoint: 1,
    headers: [['content-type', 'application/json']],
    edits: [],
    streaming: false,
    dropUsage: false,
    firstByteMs: 900_000,
    stallMs: 120_000,
    receipt: 'receipt',
    bodyLength: undefined,
    ...more,
  };
}
