/** An agent's end of the tunnel spoken by hand, over a real socket to the Worker. */
import { once } from 'node:events';
import { WebSocket } from 'ws';
import { createIdentity } from '../../../agent/tunnel/identity.ts';
import type { Identity } from '../../../agent/tunnel/types.ts';
import { helloMessage } from '../../../shared/lattice/session.ts';
import { type Frame, type OpenFrame, readFrames, writeFrame } from '../../../shared/wire/frames.ts';
import { SOCKET_WINDOW_BYTES } from '../../../shared/wire/limits.ts';
import { FrameWriter } from '../../../shared/wire/writer.ts';
import { atEnd, eventually } from '../processes.ts';
import { nodeRecord, type Workshop } from './workshop.ts';

type FrameOf<T extends Frame['type']> = Extract<Frame, { type: T }>;

/** The bytes of a message. */
export function messageOf(...frames: Frame[]): Uint8Array {
  const out = new FrameWriter();
  let previous: number | undefined;
  for (const frame of frames) previous = writeFrame(out, frame, previous);
  return out.take();
}

export class HandAgent {
  readonly identity: Identity;
  readonly socket: WebSocket;
  readonly frames: Frame[] = [];
  readonly closed: Promise<{ code: number; reason: string }>;
  closeCode: number | undefined;

  constructor(shop: Workshop, identity: Identity = createIdentity()) {
    this.identity = identity;
    const url = new URL('/agent/connect', shop.url);
    url.protocol = 'ws:';
    this.socket = new WebSocket(url, {
      perMessageDeflate: false,
      headers: {
        authorization: `Bearer ${shop.token}`,
        'x-otela-protocol': '1',
        'x-otela-session': identity.session,
      },
    });
    this.socket.on('message', (data: Buffer, binary: boolean) => {
      if (binary)
        readFrames(data, (frame) =>
          this.frames.push(frame.type === 'data' ? { ...frame, bytes: frame.bytes.slice() } : frame),
        );
    });
    this.socket.on('error', () => undefined);
    this.closed = once(this.socket, 'close').then(([code, reason]) => {
      this.closeCode = Number(code);
      return { code: Number(code), reason: String(reason) };
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

  when<T extends Frame['type']>(type: T, count = 1, withinMs = 5_000): Promise<FrameOf<T>> {
    return eventually(`${type} ${count}`, withinMs, () => this.all(type)[count - 1]);
  }

  hello(nonce: Uint8Array, generation = 1, more: Partial<FrameOf<'hello'>> = {}): FrameOf<'hello'> {
    const signature = this.identity.sign(helloMessage(this.identity.session, generation, nonce));
    const { publicKey } = this.identity;
    return { type: 'hello', publicKey, signature, generation, window: SOCKET_WINDOW_BYTES, ...more };
  }

  /** Challenge, hello, welcome, and the record stored. */
  async join(models: string[], generation = 1): Promise<this> {
    const { nonce } = await this.when('challenge');
    this.send(this.hello(nonce, generation));
    await this.when('welcome');
    this.send({ type: 'record', sequence: 1, json: JSON.stringify(nodeRecord(models)) });
    await this.when('recorded');
    return this;
  }

  /** The n-th opening, with all of its body read. */
  async opening(n = 1): Promise<OpenFrame> {
    const open = await this.when('open', n);
    await eventually('the body', 5_000, () =>
      this.frames.some((frame) => frame.type === 'end' && frame.stream === open.stream) ? true : undefined,
    );
    return open;
  }

  /** A whole answer to an opening. */
  answer(
    stream: number,
    body = '{"ok":true}',
    headers: [string, string][] = [['content-type', 'application/json']],
  ): void {
    const bytes = new TextEncoder().encode(body);
    this.send(
      { type: 'accept', stream, bodyOffset: 0, bodyDone: true },
      { type: 'head', stream, status: 200, engineTenths: 10, headers },
      { type: 'data', stream, offset: 0, bytes },
      { type: 'end', stream, offset: bytes.length },
      {
        type: 'report',
        stream,
        usage: { prompt: 1, completion: 2, cached: 0, reasoning: 0, estimated: false, complete: true, aborted: false },
      },
    );
  }
}
