import type { ClientDisconnect } from '../../shared/proxy/client-disconnect.ts';
import type { AttemptHead } from '../../shared/upstream/attempt.ts';
import { AttemptError } from '../../shared/upstream/attempt-error.ts';
import { PieceReader } from '../../shared/upstream/piece-reader.ts';
import type { ResponseOffloadHandle, ResponseStream } from '../../shared/upstream/response.ts';
import { waitClock } from '../platform/wait-clock.ts';
import type { AttemptReply } from '../tunnel/call/call-tunnel.ts';

/** How long a broken answer is claimed from the session's next object; the agent keeps it 10 s behind a lost socket. */
const CLAIM_MS = 15_000;
const CLAIM_PAUSE_MS = 100;

/** Asks the session's object for an attempt. Undefined: open it. A number: claim its response from that byte on. */
type Ask = (offset: number | undefined) => Promise<AttemptReply>;

/** Nothing is claimed any more for a client that left. */
type Client = Pick<ClientDisconnect, 'left'>;

type Head = Extract<AttemptReply, { kind: 'head' }>;

/**
 * One engine's answer, read as it comes. The object that carries it may be deployed anew or evicted at any time: the rest is
 * then claimed from its successor, and the reader sees one unbroken answer.
 */
export class TunnelResponse implements ResponseStream {
  readonly status: number;
  readonly head: AttemptHead;
  readonly #ask: Ask;
  readonly #client: Client;
  #reply: Head;
  #reader: PieceReader | undefined;
  #offset = 0;
  #begun = false;

  private constructor(ask: Ask, client: Client, reply: Head) {
    this.#ask = ask;
    this.#client = client;
    this.#reply = reply;
    this.status = reply.status;
    this.head = reply.head;
  }

  /** @throws AttemptError when no engine's head came. */
  static async open(ask: Ask, client: Client): Promise<TunnelResponse> {
    return new TunnelResponse(ask, client, headOf(await persist(() => ask(undefined), client)));
  }

  /** The next bytes, or undefined at the complete end. @throws AttemptError when the rest cannot be had. */
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

  /** The body where it came in memory is one piece. */
  async #next(): Promise<Uint8Array | undefined> {
    const { body } = this.#reply;
    this.#begun = true;
    if (body instanceof ReadableStream) {
      this.#reader ??= new PieceReader(body);
      return this.#reader.read();
    }
    if (body === null && this.#reply.offloaded !== undefined) throw new Error('the rest has to be asked for');
    this.#reply = { ...this.#reply, body: null };
    return body ?? undefined;
  }

  /**
   * The body where it came whole: it need not be read here, and its length keeps a broken pipe from looking like an end.
   * Undefined where it still streams, or where it has been read from.
   */
  get whole(): Uint8Array | ReadableStream<Uint8Array> | null | undefined {
    return this.#reply.whole && !this.#begun ? this.#reply.body : undefined;
  }

  /** Of `whole`, where it streams and where that is known. */
  get length(): number | undefined {
    return this.#reply.length;
  }

  /** The rest is offloaded, unless it is read here. */
  get offload(): ResponseOffloadHandle | undefined {
    const { offloaded } = this.#reply;
    if (offloaded === undefined) return undefined;
    return { rest: offloaded.number, over: () => offloaded.over() };
  }

  async #claim(): Promise<void> {
    this.#reply = headOf(await persist(() => this.#ask(this.#offset), this.#client));
    this.#reader = undefined;
  }

  /** The reader stops: the engine's work is cancelled. */
  async cancel(): Promise<void> {
    this.#reply.offloaded?.leave();
    try {
      if (this.#reader !== undefined) await this.#reader.cancel();
      else if (this.#reply.body instanceof ReadableStream) await this.#reply.body.cancel();
    } catch {
      // broken already
    }
  }
}

function headOf(reply: AttemptReply): Head {
  if (reply.kind === 'failure') throw new AttemptError(reply.code, reply.message);
  return reply;
}

/** An object that throws is being replaced: its successor is asked, until claiming is hopeless. */
async function persist(ask: () => Promise<AttemptReply>, client: Client): Promise<AttemptReply> {
  const deadline = waitClock.now() + CLAIM_MS;
  while (!client.left) {
    try {
      return await ask();
    } catch (error) {
      if (client.left) break; // its requests fail, the object is well
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
