import { GatewayRefusalError } from '../../node/gateway-client.ts';
import { LINE_MAX_BYTES } from '../../shared/batch/batch-input-check.ts';
import type { GrantedLease, LeaseState } from '../../shared/batch/granted-lease.ts';
import { engineRequest, lineBody } from '../../shared/batch/line-body.ts';
import type { LineResult } from '../../shared/batch/line-results.ts';
import { LineSplitter } from '../../shared/batch/line-splitter.ts';
import { orderByPrefix, promptPrefixHash } from '../../shared/batch/prompt-prefix.ts';
import { parseJson } from '../../shared/text/parse-json.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { BatchGateway } from './batch-gateway-client.ts';

/** A line to run: its index in the chunk, and the JSON of its request. */
export interface PendingLine {
  lease: LeaseWork;
  line: number;
  body: string;
}

/** Results wait for this long, or until they have this many bytes. */
const FLUSH_MS = 1_000;
const FLUSH_BYTES = 64 * 1024;
/** Limit of uncommitted results, above which the runner takes no leases. */
export const UNCOMMITTED_MAX_BYTES = 16 * 1024 * 1024;
/** Results in one commit: the gateway accepts 4 MiB, and JSON in JSON may be twice as long. */
const COMMIT_MAX_BYTES = 1024 * 1024;
/** A commit that failed is tried again after this. */
const RETRY_MS = 1_000;
/**
 * Renewals during a lease. If its lines take minutes, a node commits nothing meanwhile and learns only this way that
 * the batch was cancelled.
 */
const RENEWALS = 6;

interface LeaseEvents {
  /** The gateway asks to run these lines again. */
  again(lines: number[]): void;
  /** The gateway asks to run lines of this lease on another node. */
  elsewhere?(): void;
  /** Lines of this lease that have not begun must not begin. */
  stopped?(): void;
  /** No line or result of this lease is left here. */
  over(): void;
  log(line: string): void;
}

/** One lease: its remaining lines, and the results on their way to the gateway. */
export class LeaseWork {
  readonly lease: GrantedLease;
  readonly gateway: BatchGateway;
  readonly #events: LeaseEvents;
  readonly #waiting: LineResult[] = [];
  #waitingBytes = 0;
  /** Lines without a committed result. */
  #remaining: number;
  #timer: NodeJS.Timeout | undefined;
  #renewal: NodeJS.Timeout | undefined;
  #sending: Promise<void> | undefined;
  #isValid = true;
  /** False: the gateway has ended the lease, so it need not be released. */
  #leased = true;
  readonly #stop = new AbortController();
  /** Lines that another node should run. */
  #releasedLines = 0;

  constructor(lease: GrantedLease, gateway: BatchGateway, events: LeaseEvents) {
    this.lease = lease;
    this.gateway = gateway;
    this.#events = events;
    this.#remaining = lease.open.length;
    this.#renewal = setInterval(() => neverRejects(this.#renew()), lease.leaseMs / RENEWALS);
  }

  /** False: the lease is not valid any more. Running lines may end, and no others begin. */
  get stands(): boolean {
    return this.#isValid;
  }

  /** Aborts running lines: the gateway does not accept their results any more. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Ends the lines that run here. Existing results are still committed. */
  abort(): void {
    this.#stop.abort();
  }

  get uncommittedBytes(): number {
    return this.#waitingBytes;
  }

  /**
   * The open lines of the chunk, with lines of a common prefix next to each other. An unreadable line gets a failed
   * result; if it were skipped, it would be leased again and again.
   * @param priority of the engine's requests; it replaces the line's own
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

  /** Undefined if it cannot be read. */
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
    this.#flushWhenDue();
  }

  /** Commits if enough results wait, otherwise after a moment. */
  #flushWhenDue(): void {
    if (this.#isDue) neverRejects(this.flush());
    else if (this.#waiting.length > 0) this.#timer ??= setTimeout(() => neverRejects(this.flush()), FLUSH_MS);
  }

  /** True if enough results wait; the last results of a lease are committed immediately. */
  get #isDue(): boolean {
    const { length } = this.#waiting;
    return this.#waitingBytes >= FLUSH_BYTES || (length > 0 && length >= this.#remaining);
  }

  /** Lines that will not run here. */
  drop(lines: number): void {
    this.#remaining -= lines;
    this.#endIfDone();
  }

  /** Lines for another node: the lease is released as soon as no line of it is left here. */
  giveBack(lines: number): void {
    this.#releasedLines += lines;
    this.drop(lines);
  }

  /** Commits the waiting results; after a failure it is tried again until the gateway accepts or refuses them. */
  flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#sending ??= this.#send().finally(() => {
      this.#sending = undefined;
      this.#flushWhenDue();
    });
    return this.#sending;
  }

  /** Resolves when no result waits for a commit. */
  async settled(): Promise<void> {
    while (this.#waiting.length > 0 || this.#sending !== undefined) await this.flush();
  }

  /** Returns the lease after all results are committed. */
  async release(): Promise<void> {
    await this.settled();
    this.#end();
    await this.gateway.release(this.lease).catch(() => {});
  }

  async #send(): Promise<void> {
    const results = this.#waiting.splice(0, this.#commitLines());
    if (results.length === 0) return;
    try {
      const { again, elsewhere: releasedLines = 0, ...lease } = await this.gateway.commit(this.lease, results);
      this.#releasedLines += releasedLines;
      this.#remaining -= results.length - again.length;
      this.#waitingBytes -= bytesOf(results);
      this.#applyState(lease);
      if (again.length > 0) this.#events.again(again);
      if (releasedLines > 0) this.#events.elsewhere?.();
      this.#endIfDone();
    } catch (error) {
      if (isRefusal(error)) {
        // The gateway would refuse every retry: the batch is over, or another gateway has the data now.
        this.#events.log(`results of ${results.length} lines are refused: ${String(error)}`);
        this.#waitingBytes -= bytesOf(results);
        this.#isValid = false;
        this.#remaining -= results.length;
        return this.#endIfDone();
      }
      this.#waiting.unshift(...results);
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  /** Number of results in one commit; at least one. */
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
      this.#applyState(await this.gateway.renew(this.lease));
    } catch (error) {
      // The batch or its owner was deleted. A gateway that cannot be reached is not a reason: the lease expires there,
      // and results are still valid.
      if (error instanceof GatewayRefusalError && error.status === 409) this.#applyState({ leased: false, stop: true });
    }
  }

  #applyState({ leased, stop = false }: LeaseState): void {
    this.#leased = leased;
    this.#isValid &&= leased && !stop;
    if (!stop || this.#stop.signal.aborted) return;
    this.#stop.abort();
    this.#events.stopped?.();
  }

  #endIfDone(): void {
    if (this.#remaining > 0 || this.#waiting.length > 0) return;
    this.#end();
    // Other nodes, or a cancelled batch, wait for the end of this lease, so it is released before it expires.
    if (this.#leased && (this.#releasedLines > 0 || this.#stop.signal.aborted))
      this.gateway.release(this.lease).catch(() => {});
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
