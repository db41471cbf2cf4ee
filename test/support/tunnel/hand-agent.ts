/** An agent's end of the tunnel, played by the test over a real socket to the Worker. */
import { WebSocket } from 'ws';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import type { NodeRecord } from '../../../shared/lattice/node-record.ts';
import { helloMessage } from '../../../shared/lattice/session-id.ts';
import { readFrames, writeFrame } from '../../../shared/wire/frame-codec.ts';
import { FrameWriter } from '../../../shared/wire/frame-writer.ts';
import type { Frame, OpenFrame } from '../../../shared/wire/frames.ts';
import { FRAMES_HEADER, SOCKET_WINDOW_BYTES } from '../../../shared/wire/protocol-constants.ts';
import { atEnd, eventually } from '../processes.ts';
import { type TestIdentity, wordsOf } from './identities.ts';
import { nodeRecord, type TunnelBench } from './tunnel-bench.ts';

type FrameOf<T extends Frame['type']> = Extract<Frame, { type: T }>;

/** Encodes a message. */
export function messageOf(...frames: Frame[]): Uint8Array {
  const out = new FrameWriter();
  let previous: number | undefined;
  for (const frame of frames) previous = writeFrame(out, frame, previous);
  return out.take();
}

/** The frames of a complete answer to an opening. */
export function answerOf(
  stream: number,
  body = '{"ok":true}',
  headers: [string, string][] = [['content-type', 'application/json']],
): Frame[] {
  const bytes = new TextEncoder().encode(body);
  const usage = { prompt: 1, completion: 2, cached: 0, reasoning: 0, estimated: false, complete: true, aborted: false };
  return [
    { type: 'accept', stream, bodyOffset: 0, bodyDone: true },
    { type: 'head', stream, status: 200, engineTenths: 10, headers },
    { type: 'data', stream, offset: 0, bytes },
    { type: 'end', stream, offset: bytes.length },
    { type: 'report', stream, usage },
  ];
}

export class HandAgent {
  readonly identity: TestIdentity;
  readonly #audience: string;
  readonly socket: WebSocket;
  readonly frames: Frame[] = [];
  readonly closed: Promise<{ code: number; reason: string }>;
  closeCode: number | undefined;
  /** The status of a response that is not an upgrade. */
  readonly refused: Promise<number>;

  constructor(shop: Pick<TunnelBench, 'url' | 'issuer'>, identity?: TestIdentity);
  constructor(shop: Pick<TunnelBench, 'url'>, identity: TestIdentity, reads?: number);
  constructor(
    shop: Pick<TunnelBench, 'url'> & Partial<Pick<TunnelBench, 'issuer'>>,
    identity = shop.issuer?.identity({ cluster: 'testbed' }),
    /** Highest frame type that this agent reads. */
    reads?: number,
  ) {
    if (identity === undefined) throw new Error('an issuer or an identity');
    this.identity = identity;
    this.#audience = shop.url.host;
    const url = new URL('/agent/connect', shop.url);
    url.protocol = 'ws:';
    this.socket = new WebSocket(url, {
      perMessageDeflate: false,
      headers: {
        'x-otela-protocol': '2',
        'x-otela-ticket': toBase64url(identity.ticket.bytes),
        ...(reads === undefined ? {} : { [FRAMES_HEADER]: String(reads) }),
      },
    });
    this.socket.on('message', (data: Buffer, binary: boolean) => {
      if (binary)
        readFrames(data, (frame) =>
          this.frames.push(frame.type === 'data' ? { ...frame, bytes: frame.bytes.slice() } : frame),
        );
    });
    this.socket.on('error', () => undefined);
    this.refused = new Promise((resolve) => {
      this.socket.on('unexpected-response', (_request, response) => {
        resolve(response.statusCode ?? 0);
        response.destroy();
        this.socket.terminate();
      });
    });
    this.closed = new Promise((resolve) => {
      this.socket.on('close', (code, reason) => {
        this.closeCode = code;
        resolve({ code, reason: String(reason) });
      });
    });
    atEnd(() => this.socket.terminate());
  }

  send(...frames: Frame[]): void {
    this.socket.send(messageOf(...frames));
  }

  sendRaw(message: Uint8Array | string): void {
    this.socket.send(message);
  }

  all<T extends Frame['type']>(type: T): FrameOf<T>[] {
    return this.frames.filter((frame): frame is FrameOf<T> => frame.type === type);
  }

  /** Resolves with the n-th frame of this type. Rejects if the socket closes before. */
  async when<T extends Frame['type']>(type: T, count = 1, withinMs = 5_000): Promise<FrameOf<T>> {
    const seen = (): FrameOf<T> | undefined => this.all(type)[count - 1];
    await eventually(`${type} ${count}`, withinMs, () => seen() ?? this.closeCode);
    const frame = seen();
    if (frame === undefined) throw new Error(`closed with ${this.closeCode} before ${type} ${count}`);
    return frame;
  }

  hello(nonce: Uint8Array, generation = 1, more: Partial<FrameOf<'hello'>> = {}): FrameOf<'hello'> {
    const { session, publicKey } = this.identity;
    const signature = this.identity.sign(helloMessage(session, generation, nonce, this.#audience));
    return { type: 'hello', publicKey, signature, generation, window: SOCKET_WINDOW_BYTES, ...more };
  }

  /** The agent's registry record, for a RECORD frame. */
  words(models: string[], more: Partial<NodeRecord> = {}): Uint8Array {
    return wordsOf(this.identity, { ...nodeRecord(models), ...more });
  }

  /** Completes the handshake (challenge, hello, welcome), and resolves when the gateway has stored the record. */
  async join(models: string[], generation = 1): Promise<this> {
    const { nonce } = await this.when('challenge');
    this.send(this.hello(nonce, generation));
    await this.when('welcome');
    this.send({ type: 'record', sequence: 1, update: this.words(models) });
    await this.when('recorded');
    return this;
  }

  /** Resolves with the n-th OPEN frame when the whole body of its request was read. */
  async opening(n = 1): Promise<OpenFrame> {
    const open = await this.when('open', n);
    await eventually('the body', 5_000, () =>
      this.frames.some((frame) => frame.type === 'end' && frame.stream === open.stream) ? true : undefined,
    );
    return open;
  }

  /** Sends a complete answer to an opening. */
  answer(...answer: Parameters<typeof answerOf>): void {
    this.send(...answerOf(...answer));
  }
}
