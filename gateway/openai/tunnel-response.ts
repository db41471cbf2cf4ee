import type { ClientDisconnect } from '../../shared/proxy/client-disconnect.ts';
import type { AttemptHead } from '../../shared/upstream/attempt.ts';
import { AttemptError } from '../../shared/upstream/attempt-error.ts';
import { PieceReader } from '../../shared/upstream/piece-reader.ts';
import type { ResponseOffloadHandle, ResponseStream } from '../../shared/upstream/response.ts';
import { waitClock } from '../platform/wait-clock.ts';
import type { AttemptReply } from '../tunnel/call/call-tunnel.ts';

/**
 * How long a broken response is claimed from the session's next object; the agent keeps it for 10 s after a lost
 * socket.
 */
const CLAIM_MS = 15_000;
const CLAIM_PAUSE_MS = 100;

/**
 * Requests an attempt from the session's object. Undefined: opens it. A number: claims its response from that byte on.
 */
type Ask = (offset: number | undefined) => Promise<AttemptReply>;

/** After the client disconnects, nothing is claimed. */
type Client = Pick<ClientDisconnect, 'left'>;

type Head = Extract<AttemptReply, { kind: 'head' }>;

/**
 * One engine's response, read as a stream. The object that carries it may be redeployed or evicted at any time: the
 * rest is then claimed from its successor, and the reader gets one unbroken response.
 */
export class TunnelResponse implements ResponseStream {
  readonly status: number;
  readonly head: AttemptHead;
  readonly #ask: Ask;
  readonly #client: Client;
  #reply: Head;
  #reader: PieceReader | undefined;
  #offset = 0;
  #started = false;

  private constructor(ask: Ask, client: Client, reply: Head) {
    this.#ask = ask;
    this.#client = client;
    this.#reply = reply;
    this.status = reply.status;
    this.head = reply.head;
  }

  /** @throws AttemptError if no engine's head arrived */
  static async open(ask: Ask, client: Client): Promise<TunnelResponse> {
    return new TunnelResponse(ask, client, headOf(await persist(() => ask(undefined), client)));
  }

  /** The next bytes, or undefined at the complete end. @throws AttemptError if the rest is not available */
  async read(): Promise<Uint8Array | undefined> {
    for (;;) {
      try {
        const value = await this.#next();
        if (value === undefined) return undefined;
        this.#offset += value.length;
        return value;
      } catch {
        await this.#claim();
      }
    }
  }

  /** A body that arrived in memory is one piece. */
  async #next(): Promise<Uint8Array | undefined> {
    const { body } = this.#reply;
    this.#started = true;
    if (body instanceof ReadableStream) {
      this.#reader ??= new PieceReader(body);
      return this.#reader.read();
    }
    if (body === null && this.#reply.offloaded !== undefined) throw new Error('the rest has to be asked for');
    this.#reply = { ...this.#reply, body: null };
    return body ?? undefined;
  }

  /**
   * The body, if it arrived whole: it need not be read here, and its length distinguishes a broken pipe from an end.
   * Undefined if it still streams, or if part of it was read.
   */
  get whole(): Uint8Array | ReadableStream<Uint8Array> | null | undefined {
    return this.#reply.whole && !this.#started ? this.#reply.body : undefined;
  }

  /** Length of a `whole` that streams. Undefined: unknown. */
  get length(): number | undefined {
    return this.#reply.length;
  }

  /** Defined if the rest is offloaded, unless it is read here. */
  get offload(): ResponseOffloadHandle | undefined {
    const { offloaded } = this.#reply;
    if (offloaded === undefined) return undefined;
    return { rest: offloaded.number, over: () => offloaded.over() };
  }

  async #claim(): Promise<void> {
    this.#reply = headOf(await persist(() => this.#ask(this.#offset), this.#client));
    this.#reader = undefined;
  }

  /** The reader stops: cancels the engine's work. */
  async cancel(): Promise<void> {
    this.#reply.offloaded?.leave();
    try {
      if (this.#reader !== undefined) await this.#reader.cancel();
      else if (this.#reply.body instanceof ReadableStream) await this.#reply.body.cancel();
    } catch {
      // Already broken.
    }
  }
}

function headOf(reply: AttemptReply): Head {
  if (reply.kind === 'failure') throw new AttemptError(reply.code, reply.message);
  return reply;
}

/** An object that throws is being replaced: retries with its successor until a claim can no longer succeed. */
async function persist(ask: () => Promise<AttemptReply>, client: Client): Promise<AttemptReply> {
  const deadline = waitClock.now() + CLAIM_MS;
  while (!client.left) {
    try {
      return await ask();
    } catch (error) {
      if (client.left) break; // The client's requests fail, but the object works.
      if (isOverloaded(error)) throw new AttemptError('overloaded', 'the tunnel takes no more requests');
      if (waitClock.now() > deadline) throw new AttemptError('lost', 'the tunnel is gone');
      await new Promise((resolve) => setTimeout(resolve, CLAIM_PAUSE_MS));
    }
  }
  throw new AttemptError('cancelled', 'the client left');
}

function isOverloaded(error: unknown): boolean {
  return typeof error === 'object' && error !== null && 'overloaded' in error && error.overloaded === true;
}
