import { isCancelOnly } from '../../shared/attempts/abandoned-attempts.ts';
import { attemptName } from '../../shared/attempts/attempt-request.ts';
import { TransientMap } from '../../shared/collections/transient-map.ts';
import { inBackground } from '../../shared/timing/in-background.ts';
import type { Frame, OpenFrame } from '../../shared/wire/frames.ts';
import type { Link } from '../../shared/wire/link.ts';
import { RATE_FRAME, RETAINED_TAIL_BYTES } from '../../shared/wire/protocol-constants.ts';
import type { ReportedTimings, ReportedUsage } from '../../shared/wire/reported-usage.ts';
import { WireError } from '../../shared/wire/wire-error.ts';
import type { EngineTarget } from '../engine/engine-address.ts';
import { PrefixBlocks } from '../engine/prefix-blocks.ts';
import type { SealOpener } from '../seal/seal-opener.ts';
import { waitClock } from '../wait-clock.ts';
import type { CallerAccount } from './caller-account.ts';
import { EngineAttempt, type EngineAttemptHost } from './engine-attempt.ts';
import { EngineClient } from './engine-client.ts';
import { type LoadCounter, LoadReports } from './load-reports.ts';
import { type PendingReport, PendingReports, reportFrame } from './pending-reports.ts';
import { isSealed } from './sealed-call.ts';

/** Maximum number of concurrent attempts: more than an engine batches. Further attempts are refused as `overloaded`. */
const REQUESTS_MAX = 4096;

/** Maximum size of all finished responses that the other end has not acknowledged; the oldest are dropped. */
const FINISHED_MAX_BYTES = 64 * 1024 * 1024;
const FINISHED_MAX = 10_000;

/**
 * Maximum wait of a drain if all responses were sent and only SETTLED is missing. A gateway sends SETTLED a quarter of
 * a second after a response. A gateway that has just stopped never sends it, and an idle agent would wait for the whole
 * drain time.
 */
const SETTLED_WAIT_MS = 2_000;

/** Statuses of an engine that may have lost a model since the last probe, or is loading it again. */
const LOST_MODEL: ReadonlySet<number> = new Set([404, 503]);

/** What the other end of a link said at the handshake. */
export interface LinkPeer {
  /** The highest frame type that it reads. Default: 0. */
  reads?: number;
  /** Number of bytes that an attempt keeps after they were acknowledged. Default: RETAINED_TAIL_BYTES. */
  tail?: number;
}

/** Gives an attempt up to another gateway that claims it. */
export interface AttemptGiver {
  /** Returns the attempt, with its usage if no gateway has stored it yet. Undefined: it is not here. */
  give(name: string): { attempt: EngineAttempt; report: PendingReport | undefined } | undefined;
}

/**
 * All attempts of one gateway, or of one other agent, at this node's engine. An attempt outlives the socket on which it
 * arrived, and can be found by its name or by its stream.
 */
export class EngineAttempts implements AttemptGiver {
  readonly reports: PendingReports;
  readonly #engine: () => EngineTarget | undefined;
  readonly #log: (line: string) => void;
  readonly #load: LoadCounter | undefined;
  readonly #loadReports: LoadReports | undefined;
  /** Attempts of other gateways whose streams this gateway may continue. */
  readonly #siblings: () => Iterable<AttemptGiver>;
  readonly #account: CallerAccount | undefined;
  #tail = RETAINED_TAIL_BYTES;
  /** The highest frame type that the other end reads. */
  #reads = 0;
  readonly #named = new TransientMap<string, EngineAttempt>();
  readonly #streams = new TransientMap<number, EngineAttempt>();
  /** Finished attempts, in the order of finishing. */
  readonly #finished = new TransientMap<string, EngineAttempt>();
  readonly #blocks = new PrefixBlocks();
  readonly #host: EngineAttemptHost;
  #running = 0;
  #client: EngineClient | undefined;
  #draining = false;
  #link: Link | undefined;
  #onDrained: (() => void)[] = [];
  /** When all responses had been sent during a drain; undefined before that. */
  #allSentAt: number | undefined;

  constructor(
    engine: () => EngineTarget | undefined,
    log: (line: string) => void,
    load?: LoadCounter,
    seals?: SealOpener,
    siblings: () => Iterable<AttemptGiver> = () => [],
    account?: CallerAccount,
  ) {
    this.#siblings = siblings;
    this.#account = account;
    this.#host = {
      seals,
      tail: () => this.#tail,
      reads: () => this.#reads,
      now: () => performance.now(),
      patientNow: () => waitClock.now(),
      usageOptions: () => this.#client?.usage.state ?? 'unknown',
      onHead: (status) => {
        if (LOST_MODEL.has(status)) this.#load?.lost?.();
        this.#loadReports?.onHead();
      },
      onFirstToken: (ms) => this.#load?.firstToken(ms),
      onReport: (ended, usage, timings) => this.#report(ended, usage, timings),
      onPrompt: ({ stream }, body) => this.#reportPrefixes(stream, body),
      onIdle: (ended) => this.#onIdle(ended),
    };
    this.#engine = engine;
    this.#load = load;
    this.#loadReports = load && new LoadReports(load);
    this.#log = log;
    this.reports = new PendingReports(log);
  }

  get running(): number {
    return this.#running;
  }

  /** Number of attempts in memory, including finished ones. */
  get size(): number {
    return this.#named.size;
  }

  /** Call when a socket is ready. Repeats the reports that the gateway has not stored. */
  connect(link: Link, { reads = 0, tail = RETAINED_TAIL_BYTES }: LinkPeer = {}): void {
    this.#link = link;
    this.#tail = tail;
    this.#loadReports?.connect(link, reads >= RATE_FRAME);
    this.#reads = reads;
    for (const frame of this.reports.again(reads)) link.put(frame);
  }

  /** Call when the socket is gone. Every attempt waits to be claimed. */
  disconnect(): void {
    this.#link = undefined;
    this.#loadReports?.disconnect();
    this.#streams.clear();
    for (const attempt of this.#named.values()) attempt.unbind();
  }

  /**
   * Handles the stream frames of one message. `touched` collects attempts that may start after the message was read.
   */
  onFrame(link: Link, frame: Frame, touched: Set<EngineAttempt>): void {
    switch (frame.type) {
      case 'open':
        return this.#open(link, frame, touched);
      case 'data':
      case 'end':
        return this.#body(link, frame);
      case 'reset':
        return this.#reset(frame);
      case 'settled':
        for (const stream of frame.streams) this.#settle(stream);
        return;
      default:
        throw new WireError('bad_frame', `the caller must not send ${frame.type}`);
    }
  }

  #open(link: Link, frame: OpenFrame, touched: Set<EngineAttempt>): void {
    const known = this.#named.get(attemptName(frame)) ?? this.#adopt(frame);
    if (known !== undefined) {
      if (this.#streams.get(known.stream) === known) this.#streams.delete(known.stream);
      if (known.claim(link, frame)) {
        this.#streams.set(frame.stream, known);
        if (known.notStarted) touched.add(known);
        return;
      }
      this.#forget(known); // the gateway asks for a part of the response that is no longer in memory
      return this.#refuse(link, frame.stream, 'unknown', 'that part of the response is no longer stored');
    }
    if (frame.resume) return this.#refuse(link, frame.stream, 'unknown', 'this agent does not know the attempt');
    if (this.#draining) return this.#refuse(link, frame.stream, 'refused', 'draining');
    const endpoint = EngineAttempt.endpointOf(frame);
    if (endpoint === undefined) return this.#refuse(link, frame.stream, 'refused', 'unknown endpoint');
    if (isSealed(frame) && this.#host.seals === undefined)
      return this.#refuse(link, frame.stream, 'seal_refused', 'this node does not open sealed requests');
    if (this.#engine() === undefined) return this.#refuse(link, frame.stream, 'refused', 'the engine is not ready');
    if (this.#running >= REQUESTS_MAX) return this.#refuse(link, frame.stream, 'overloaded', 'too many requests');
    // Check this before the body is read, so that the request can still go to another node or wait in the gateway's
    // queue.
    const full = endpoint.batched ? this.#load?.full : undefined;
    if (full !== undefined) return this.#refuse(link, frame.stream, 'overloaded', full);
    const over = this.#account?.refusal(frame);
    if (over !== undefined) return this.#refuse(link, frame.stream, over.code, over.message);
    const attempt = this.#create(frame, endpoint);
    attempt.bind(link);
    touched.add(attempt);
  }

  /**
   * Takes over an attempt that another gateway process opened, because that process or its socket has ended. This one
   * claims it, or opens it again if it does not know whether the agent received the first opening. The engine must not
   * get the request twice. A claim that only cancels takes nothing: the attempt has a reader elsewhere.
   */
  #adopt(frame: OpenFrame): EngineAttempt | undefined {
    if (isCancelOnly(frame)) return undefined;
    for (const sibling of this.#siblings()) {
      const given = sibling.give(attemptName(frame));
      if (given === undefined) continue;
      const { attempt, report } = given;
      attempt.moveTo(this.#host);
      this.#named.set(attempt.name, attempt);
      if (report !== undefined) this.reports.add({ ...report, stream: frame.stream });
      if (attempt.finished) this.#finished.set(attempt.name, attempt);
      else {
        this.#running++;
        this.#loadReports?.onBegin();
      }
      return attempt;
    }
    return undefined;
  }

  give(name: string): { attempt: EngineAttempt; report: PendingReport | undefined } | undefined {
    const attempt = this.#named.get(name);
    if (attempt === undefined) return undefined;
    this.#named.delete(name);
    this.#streams.delete(attempt.stream);
    this.#finished.delete(name);
    if (!attempt.finished) {
      this.#running--;
      this.#loadReports?.onIdle();
    }
    const report = this.reports.take(attempt.stream);
    if (this.#named.size === 0) this.#drained();
    return { attempt, report };
  }

  #create(frame: OpenFrame, endpoint: NonNullable<ReturnType<typeof EngineAttempt.endpointOf>>): EngineAttempt {
    const attempt = new EngineAttempt(frame, endpoint, this.#host);
    attempt.account = this.#account?.begin(frame);
    this.#named.set(attempt.name, attempt);
    this.#streams.set(frame.stream, attempt);
    this.#running++;
    this.#load?.begin();
    this.#loadReports?.onBegin();
    return attempt;
  }

  /**
   * Sends the digests of the prompt's blocks for the gateway's workload trace. No request waits for them, so they are
   * dropped if no socket is open.
   */
  #reportPrefixes(of: number, body: Uint8Array): void {
    const target = this.#engine();
    if (target !== undefined)
      this.#blocks.ask(body, target, (blocks) => this.#link?.put({ type: 'prefixes', of, blocks }));
  }

  #refuse(
    link: Link,
    stream: number,
    code: 'refused' | 'unknown' | 'overloaded' | 'seal_refused' | 'over_quota',
    message: string,
  ): void {
    link.put({ type: 'reset', stream, code, message });
  }

  #body(link: Link, frame: Extract<Frame, { type: 'data' | 'end' }>): void {
    const attempt = this.#streams.get(frame.stream);
    if (attempt === undefined || attempt.finished) {
      if (frame.type === 'data') link.consumed(frame.bytes.length);
      return;
    }
    if (frame.type === 'data') attempt.body.data(frame.offset, frame.bytes);
    else attempt.body.end(frame.offset);
  }

  #reset(frame: Extract<Frame, { type: 'reset' }>): void {
    const attempt = this.#streams.get(frame.stream);
    if (attempt === undefined) return;
    // The code `unknown` means that the gateway's object does not know the stream. Keep the attempt, because the
    // object's successor may claim it in a moment.
    if (frame.code !== 'unknown') return this.#forget(attempt);
    this.#streams.delete(frame.stream);
    attempt.unbind();
  }

  #report(attempt: EngineAttempt, usage: ReportedUsage, timings: ReportedTimings): void {
    attempt.account?.report(usage, timings);
    const { requestId, attempt: number, receipt } = attempt.open;
    const report = { stream: attempt.stream, usage, timings, name: { requestId, attempt: number, receipt } };
    this.reports.add(report);
    // An attempt without a link cannot send its usage with its ending. Send it now, because the next socket may be days
    // away.
    if (!attempt.bound) this.#link?.put(reportFrame(report, this.#reads));
  }

  /** Call when the gateway has stored the usage and passed the response on. The attempt is not needed any more. */
  #settle(stream: number): void {
    this.reports.settled(stream);
    const attempt = this.#streams.get(stream);
    if (attempt?.finished) this.#forget(attempt);
  }

  #forget(attempt: EngineAttempt): void {
    attempt.release();
    this.#named.delete(attempt.name);
    this.#streams.delete(attempt.stream);
    this.#finished.delete(attempt.name);
    if (this.#named.size === 0) this.#drained();
  }

  #drained(): void {
    for (const done of this.#onDrained.splice(0)) done();
  }

  #onIdle(attempt: EngineAttempt): void {
    this.#running--;
    attempt.account?.end();
    this.#load?.end();
    this.#loadReports?.onIdle();
    this.#finished.set(attempt.name, attempt);
  }

  /** Starts an attempt at the current engine. */
  start(attempt: EngineAttempt): void {
    const target = this.#engine();
    if (target === undefined) return this.#forget(attempt);
    if (this.#client === undefined || !sameTarget(this.#client.target, target)) {
      inBackground('engine', this.#client?.close(), this.#log);
      this.#client = new EngineClient(target, this.#log, () => this.#load?.onReceived?.());
    }
    attempt.start(this.#client);
  }

  /** @param now milliseconds of `waitClock` */
  tick(now: number): void {
    for (const attempt of this.#named.values()) {
      attempt.tick(now);
      if (attempt.forgettable(now)) this.#forget(attempt);
    }
    this.#trim();
    this.#loadReports?.tick(performance.now(), this.#running);
    if (this.#onDrained.length === 0) return;
    const allSent = [...this.#named.values()].every((attempt) => attempt.endingSent);
    this.#allSentAt = allSent ? (this.#allSentAt ?? now) : undefined;
    if (this.#allSentAt !== undefined && now - this.#allSentAt >= SETTLED_WAIT_MS) this.#drained();
  }

  #trim(): void {
    let bytes = 0;
    for (const attempt of this.#finished.values()) bytes += attempt.kept;
    const isFull = () => bytes > FINISHED_MAX_BYTES || this.#finished.size > FINISHED_MAX;
    if (!isFull()) return;
    // Drop attempts with a completely sent response first.
    const inOrder = [...this.#finished.values()];
    for (const attempt of [
      ...inOrder.filter(({ endingSent }) => endingSent),
      ...inOrder.filter(({ endingSent }) => !endingSent),
    ]) {
      if (!isFull()) return;
      bytes -= attempt.kept;
      this.#log(
        `dropped the response of ${attempt.name}: the gateway did not ${attempt.endingSent ? 'acknowledge it' : 'read all of it'}`,
      );
      attempt.dropAnswer();
      this.#forget(attempt);
    }
  }

  /**
   * Refuses new attempts. Resolves when every attempt is settled, or SETTLED_WAIT_MS after the last response was sent.
   */
  drain(): Promise<void> {
    this.#draining = true;
    if (this.#named.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#onDrained.push(resolve));
  }

  /** Ends running attempts with a reset to the gateway, so that other nodes can continue them. */
  giveUp(): void {
    for (const attempt of this.#named.values()) attempt.giveUp(); // not released before the end of the attempt is sent
  }

  /** The caller must `flush` the link afterwards. */
  async close(): Promise<void> {
    this.giveUp();
    await this.#client?.close();
  }
}

function sameTarget(a: EngineTarget, b: EngineTarget): boolean {
  return a.origin === b.origin && a.pathPrefix === b.pathPrefix && a.key === b.key && a.engine === b.engine;
}
