/**
 * The way on which small requests come in where one process owns the public socket (standalone/node/reception.ts): whole, over one WebSocket.
 * workerd's HTTP makes a context of its own for each request, which costs several times what is done in it.
 */
import { TransientMap } from '../../shared/collections/transient-map.ts';
import { WireError } from '../../shared/wire/error.ts';
import { FrameWriter } from '../../shared/wire/writer.ts';
import type { Env } from '../env.ts';
import { handleOpenAI } from '../openai/handle.ts';
import { INLET_HEADER, MESSAGE_BYTES, type Question, type Reply, readQuestions, writeReply } from './frames.ts';
import { Portions } from './portions.ts';
import { Replying } from './replying.ts';
import { InletRequest } from './request.ts';

/** RFC 6455 §7.4.1. */
const PROTOCOL_ERROR = 1002;

type Context = Pick<ExecutionContext, 'waitUntil'>;

/** Undefined for who does not know the secret. */
export function connectInlet(request: Request, env: Env, ctx: Context): Response | undefined {
  const { OUTLET_SECRET: secret } = env;
  if (secret === undefined || !isSame(secret, request.headers.get(INLET_HEADER) ?? '')) return undefined;
  const { 0: client, 1: server } = new WebSocketPair();
  server.binaryType = 'arraybuffer';
  server.accept();
  new Inlet(server, env, ctx);
  return new Response(null, { status: 101, webSocket: client });
}

function isSame(secret: string, given: string): boolean {
  const [one, other] = [new TextEncoder().encode(secret), new TextEncoder().encode(given)];
  return one.length === other.length && crypto.subtle.timingSafeEqual(one, other);
}

interface Open {
  request: InletRequest;
  replying: Replying;
}

class Inlet {
  readonly #socket: WebSocket;
  readonly #env: Env;
  readonly #ctx: Context;
  readonly #open = new TransientMap<number, Open>();
  readonly #portions = new Portions();
  readonly #out = new FrameWriter();

  constructor(socket: WebSocket, env: Env, ctx: Context) {
    this.#socket = socket;
    this.#env = env;
    this.#ctx = ctx;
    socket.addEventListener('message', ({ data }) => this.#onMessage(data));
    const gone = () => this.#gone();
    socket.addEventListener('close', gone);
    socket.addEventListener('error', gone);
  }

  #onMessage(data: string | ArrayBuffer): void {
    try {
      if (typeof data === 'string') throw new WireError('bad_frame', 'words');
      readQuestions(new Uint8Array(data), (question) => this.#onQuestion(question));
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      this.#socket.close(PROTOCOL_ERROR, error.message);
      this.#gone();
    }
    this.#portions.begin();
  }

  #onQuestion(question: Question): void {
    const { number } = question;
    switch (question.type) {
      case 'ask':
        return this.#onAsk(number, new InletRequest(question.head, question.body));
      case 'credit':
        return this.#open.get(number)?.replying.grant(question.limit);
      case 'leave':
        return this.#leave(number);
    }
  }

  #onAsk(number: number, request: InletRequest): void {
    const open = { request, replying: new Replying(number, (reply) => this.#put(reply)) };
    this.#open.set(number, open);
    // Also where its client leaves before that: it is on record then like any other.
    this.#portions.add(() => void this.#answer(number, open));
  }

  async #answer(number: number, { request, replying }: Open): Promise<void> {
    try {
      const answer = await handleOpenAI(request, request.path, this.#env, this.#ctx);
      await replying.send(answer);
    } catch (error) {
      console.error(error);
      this.#put({ type: 'broke', number });
    } finally {
      this.#open.delete(number);
    }
  }

  #leave(number: number): void {
    const open = this.#open.get(number);
    this.#open.delete(number);
    open?.replying.leave();
    open?.request.leave();
  }

  #gone(): void {
    for (const number of [...this.#open.keys()]) this.#leave(number);
  }

  /** What is put in one turn goes as one message. */
  #put(reply: Reply): void {
    if (!this.#open.has(reply.number)) return; // its client left
    if (this.#out.length === 0) queueMicrotask(() => this.#flush());
    writeReply(this.#out, reply);
    if (this.#out.length >= MESSAGE_BYTES) this.#flush();
  }

  #flush(): void {
    if (this.#out.length > 0 && this.#socket.readyState === WebSocket.OPEN) this.#socket.send(this.#out.message);
    this.#out.again();
  }
}
