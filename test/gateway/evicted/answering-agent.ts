/** An agent that answers each request at the test's call, over one tunnel. */
import { exports } from 'cloudflare:workers';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { helloMessage } from '../../../shared/lattice/session-id.ts';
import { encodeFrame, readFrames } from '../../../shared/wire/frame-codec.ts';
import type { Frame, OpenFrame } from '../../../shared/wire/frames.ts';
import { seedToken, TestAgent } from '../registry/agent.ts';

const USAGE = { prompt: 3, completion: 2, cached: 0, reasoning: 0, estimated: false, complete: true, aborted: false };
const CHUNK = (text: string) => `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: text } }] })}\n\n`;

export class AnsweringAgent {
  readonly agent: TestAgent;
  readonly #socket: WebSocket;
  readonly #opened: OpenFrame[] = [];
  #came = () => {};

  private constructor(agent: TestAgent, socket: WebSocket) {
    this.agent = agent;
    this.#socket = socket;
  }

  static async join(model: string): Promise<AnsweringAgent> {
    const agent = await TestAgent.join((await seedToken()).token);
    const { session, signer } = { session: agent.session, signer: agent.signer };
    const headers = {
      upgrade: 'websocket',
      'x-otela-protocol': '2',
      'x-otela-ticket': toBase64url(agent.ticket.bytes),
    };
    const answer = await exports.default.fetch(new Request('https://gateway.test/agent/connect', { headers }));
    const socket = answer.webSocket;
    if (socket === null) throw new Error(`${answer.status} ${await answer.text()}`);
    const made = new AnsweringAgent(agent, socket);
    const welcomed = new Promise<void>((resolve) => {
      socket.addEventListener('message', async ({ data }) => {
        const bytes = data instanceof Blob ? await data.arrayBuffer() : data;
        if (typeof bytes === 'string') return;
        readFrames(new Uint8Array(bytes), (frame) => {
          if (frame.type === 'challenge') {
            const signature = signer.sign(helloMessage(session, 1, frame.nonce, 'gateway.test'));
            made.send({ type: 'hello', publicKey: signer.publicKey, signature, generation: 1, window: 1_000_000 });
          } else if (frame.type === 'welcome') resolve();
          else if (frame.type === 'open') {
            made.#opened.push(frame);
            made.#came();
          }
        });
      });
    });
    socket.accept();
    await welcomed;
    await agent.publish(agent.words('SERVING', { models: [{ id: model, state: 'ready' }] }));
    return made;
  }

  send(frame: Frame): void {
    this.#socket.send(encodeFrame(frame));
  }

  close(): void {
    this.#socket.close();
  }

  /** The next request. */
  async opened(): Promise<OpenFrame> {
    for (;;) {
      const open = this.#opened.shift();
      if (open !== undefined) return open;
      await new Promise<void>((resolve) => {
        this.#came = resolve;
      });
    }
  }

  begin({ stream, streaming }: OpenFrame): void {
    const type = streaming ? 'text/event-stream' : 'application/json';
    this.send({ type: 'accept', stream, bodyOffset: 0, bodyDone: true });
    this.send({ type: 'head', stream, status: 200, engineTenths: 10, headers: [['content-type', type]] });
  }

  /** @returns the offset at which the response ends */
  data({ stream }: OpenFrame, text: string, offset = 0): number {
    const bytes = new TextEncoder().encode(text);
    this.send({ type: 'data', stream, offset, bytes });
    return offset + bytes.length;
  }

  end({ stream }: OpenFrame, offset: number): void {
    this.send({ type: 'end', stream, offset });
    this.send({ type: 'report', stream, usage: USAGE });
  }
}

export const chunk = CHUNK;
