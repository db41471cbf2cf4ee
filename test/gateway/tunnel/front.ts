import { expect } from 'vitest';
import { readFrames, writeFrame } from '../../../shared/wire/frame-codec.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { FrameWriter } from '../../../shared/wire/writer.ts';

/** The process that owns the public socket, spoken by hand. */
export class Front {
  readonly frames: Frame[] = [];
  readonly sockets: WebSocket[] = [];
  messages = 0;
  refuses = false;

  fetch = async (_url: unknown, init?: { headers?: unknown }): Promise<Response> => {
    if (this.refuses) throw new Error('refused');
    expect(init?.headers).toMatchObject({ 'x-otela-outlet': 'secret', 'x-otela-session': 'session' });
    const { 0: theirs, 1: ours } = new WebSocketPair();
    ours.binaryType = 'arraybuffer';
    ours.accept();
    ours.addEventListener('message', ({ data }) => {
      this.messages++;
      readFrames(new Uint8Array(data as ArrayBuffer), (frame) =>
        this.frames.push(frame.type === 'data' ? { ...frame, bytes: frame.bytes.slice() } : frame),
      );
    });
    this.sockets.push(ours);
    return new Response(null, { status: 101, webSocket: theirs });
  };

  async send(...frames: Frame[]): Promise<void> {
    const out = new FrameWriter();
    let previous: number | undefined;
    for (const frame of frames) previous = writeFrame(out, frame, previous);
    this.sockets.at(-1)?.send(out.take());
    await settle();
  }

  take(stream: number, window = 256 * 1024): Promise<void> {
    return this.send({ type: 'credit', stream, consumed: 0, window });
  }

  get said(): string {
    return this.frames
      .map((frame) => (frame.type === 'data' ? new TextDecoder().decode(frame.bytes) : `<${frame.type}>`))
      .join('');
  }
}

/** Both ends of a WebSocket in one isolate: what was sent is there some turns later. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setTimeout(resolve, 0));
}
