import type { GrantedLease, LeaseState } from '../../shared/batch/granted-lease.ts';
import { LINE_MAX_BYTES } from '../../shared/batch/input-check.ts';
import { engineRequest, lineBody } from '../../shared/batch/line-body.ts';
import { LineSplitter } from '../../shared/batch/line-splitter.ts';
import { orderByPrefix, promptPrefixHash } from '../../shared/batch/prefix.ts';
import type { LineResult } from '../../shared/batch/results.ts';
import { parseJson } from '../../shared/text/json.ts';
import { type BatchGateway, GatewayRefusal } from './gateway-client.ts';

/** A line to run: its index in the chunk, and the JSON of its request. */
export interface PendingLine {
  lease: LeaseWork;
  line: number;
  body: string;
}

/** Results wait for this long, or until they have this many bytes. */
const FLUSH_MS = 1_000;
const FLUSH_BYTES = 64 * 1024;
/** Results that could not be committed yet. Beyond it the runner starts no lines. */
export const UNCOMMITTED_MAX_BYTES = 16 * 1024 * 1024;
/** Results in one commit: the gateway takes 4 MiB, and JSON in JSON may be twice as long. */
const COMMIT_MAX_BYTES = 1024 * 1024;
/** A commit that fails is tried again after this. */
const AGAIN_MS = 1_000;
/** Renewals in the time of a lease. A node whose lines take minutes commits nothing, and hears of a cancel only so. */
const RENEWALS = 6;

interface LeaseEvents {
  /** The gateway wants these lines tried again. */
  again(lines: number[]): void;
  /** The gateway wants lines of this lease tried at another node. */
  elsewhere?(): void;
  /** Lines of this lease that have not begun shall not. */
  stopped?(): void;
  /** Nothing of this lease is left here. */
  over(): void;
  log(line: string): void;
}

/** One lease: what is left of it, and the results that are on their way to the gateway. */
export class LeaseWork {
  readonly lease: GrantedLease;
  readonly gateway: BatchGateway;
  readonly #events: LeaseEvents;
  readonly #waiting: LineResult[] = [];
  #waitingBytes = 0;
  /** Lines without a result that was committed. */
  #left: number;
  #timer: NodeJS.Timeout | undefined;
  #renewal: NodeJS.Timeout | undefined;
  #sending: Promise<void> | undefined;
  #stands = true;
  /** False: the gateway has ended the lease, and need not be told that it is over. */
  #leased = true;
  readonly #stop = new AbortController();
  /** Lines that the gateway wants another node to try. */
  #elsewhere = 0;

  constructor(lease: GrantedLease, gateway: BatchGateway, events: LeaseEvents) {
    this.lease = lease;
    this.gateway = gateway;
    this.#events = events;
    this.#left = lease.open.length;
    this.#renewal = setInterval(() => void this.#renew(), lease.leaseMs / RENEWALS);
  }

  /** False: the gateway has given the lease to others. Lines that run may end; no others begin. */
  get stands(): boolean {
    return this.#stands;
  }

  /** Aborts lines that run: the gateway takes their answers no more. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Ends the lines that run here. Results that are there are committed still. */
  abort(): void {
    this.#stop.abort();
  }

  get uncommittedBytes(): number {
    return this.#waitingBytes;
  }

  /**
   * The open lines of the chunk, those with a common prefix next to each other. One that cannot be read has failed: left out without a
   * word, it would be leased again and again.
   * @param priority that the engine is told, whatever the line says
   */
  linesOf(chunk: Uint8Array, priority?: number): PendingLine[] {
    const open = new Set(this.lease.open);
    const found: { line: number; body: string; prefix: number }[] = [];
    let index = 0;
    const splitter = new LineSplitter(
      LINE_MAX_BYTES,
      ({ bytes }) => {
        const line = index++;
        const request = open.has(line) ? this.#requestOf(bytes, priority) : undefined;
        if (request === undefined) return;
        open.delete(line);
        found.push({ line, ...request });
      },
      () => index++,
    );
    splitter.push(chunk);
    splitter.end();
    for (const line of open) this.add(unread(line));
    return orderByPrefix(found.map(({ prefix }) => prefix)).flatMap((at) => {
      const one = found[at];
      return one === undefined ? [] : [{ lease: this, line: one.line, body: one.body }];
    });
  }

  /** Undefined where it cannot be read. */
  #requestOf(line: Uint8Array, priority: number | undefined): { body: string; prefix: number } | undefined {
    try {
      const body = lineBody(line);
      if (body === undefined) return undefined;
      const text = engineRequest(body, { priority, thinkingTokens: this.lease.reasoningTokens });
      return { body: text, prefix: promptPrefixHash(parseJson(text) as Record<string, unknown>) };
    } catch {
      return undefined;
    }
  }

  add(result: LineResult): void {
    this.#waiting.push(result);
    this.#waitingBytes += result.body.length;
    if (this.#isDue) void this.flush();
    else this.#timer ??= setTimeout(() => void this.flush(), FLUSH_MS);
  }

  /** The last results of a lease wait for nothing. */
  get #isDue(): boolean {
    const { length } = this.#waiting;
    return this.#waitingBytes >= FLUSH_BYTES || (length > 0 && length >= this.#left);
  }

  /** Lines that will not be run here. */
  drop(lines: number): void {
    this.#left -= lines;
    this.#endIfDone();
  }

  /** Lines that another node shall run: the lease goes back as soon as nothing of it is left here. */
  giveBack(lines: number): void {
    this.#elsewhere += lines;
    this.drop(lines);
  }

  /** Commits what waits. Tries again until the gateway has taken it or refused it. */
  flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#sending ??= this.#send().finally(() => {
      this.#sending = undefined;
      if (this.#isDue) void this.flush();
      else if (this.#waiting.length > 0) this.#timer ??= setTimeout(() => void this.flush(), FLUSH_MS);
    });
    return this.#sending;
  }

  /** Until nothing waits for a commit. */
  async settled(): Promise<void> {
    while (this.#waiting.length > 0 || this.#sending !== undefined) await this.flush();
  }

  /** Gives the lease back, with all that was committed. */
  async release(): Promise<void> {
    await this.settled();
    this.#end();
    await this.gateway.release(this.lease).catch(() => {});
  }

  async #send(): Promise<void> {
    const results = this.#waiting.splice(0, this.#commitLines());
    if (results.length === 0) return;
    try {
      const { again, elsewhere = 0, ...lease } = await this.gateway.commit(this.lease, results);
      this.#elsewhere += elsewhere;
      this.#left -= results.length - again.length;
      this.#waitingBytes -= bytesOf(results);
      this.#obey(lease);
      if (again.length > 0) this.#events.again(again);
      if (elsewhere > 0) this.#events.elsewhere?.();
      this.#endIfDone();
    } catch (error) {
      if (isRefusal(error)) {
        // Never taken, however often: the batch is over, or another gateway has the data now.
        this.#events.log(`results of ${results.length} lines are refused: ${String(error)}`);
        this.#waitingBytes -= bytesOf(results);
        this.#stands = false;
        this.#left -= results.length;
        return this.#endIfDone();
      }
      this.#waiting.unshift(...results);
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  /** As many as one commit may have; one at least. */
  #commitLines(): number {
    let bytes = 0;
    const over = this.#waiting.findIndex(({ body }, i) => {
      bytes += body.length;
      return i > 0 && bytes > COMMIT_MAX_BYTES;
    });
    return over < 0 ? this.#waiting.length : over;
  }

  async #renew(): Promise<void> {
    try {
      this.#obey(await this.gateway.renew(this.lease));
    } catch (error) {
      // Its batch is gone, with who made it. A gateway that is away is no reason: the lease ends there by itself, and results are still good.
      if (error instanceof GatewayRefusal && error.status === 409) this.#obey({ leased: false, stop: true });
    }
  }

  #obey({ leased, stop = false }: LeaseState): void {
    this.#leased = leased;
    this.#stands &&= leased && !stop;
    if (!stop || this.#stop.signal.aborted) return;
    this.#stop.abort();
    this.#events.stopped?.();
  }

  #endIfDone(): void {
    if (this.#left > 0 || this.#waiting.length > 0) return;
    this.#end();
    // Other nodes, and a batch that was cancelled, wait for this lease to end, not for its time to run out.
    if (this.#leased && (this.#elsewhere > 0 || this.#stop.signal.aborted))
      void this.gateway.release(this.lease).catch(() => {});
    this.#events.over();
  }

  #end(): void {
    clearTimeout(this.#timer);
    clearInterval(this.#renewal);
    this.#renewal = undefined;
  }
}

function unread(line: number): LineResult {
  const why = 'The node could not read this line in what the gateway sent.';
  return { line, status_code: 0, request_id: '', body: '', error: 'engine_failed', why };
}

function bytesOf(results: readonly LineResult[]): number {
  return results.reduce((sum, { body }) => sum + body.length, 0);
}

function isRefusal(error: unknown): boolean {
  const status = error instanceof Error && 'status' in error ? Number(error.status) : 0;
  return status >= 400 && status < 500 && status !== 408 && status !== 429;
}
