/**
 * Watches one node for a hanging engine and acts on it: what waits for its first byte there is moved to other nodes, and until the engine
 * answers again one request at a time is let try it. `shared/routing/hang/hang-detector.ts` tells what evidence is enough.
 *
 *     trusted → (hangs) → left alone → (until) → probed → (a first byte) trusted
 *                                            └→ (none in time) left alone, longer
 */
import { endpointById } from '../openai/endpoints.ts';
import { FirstByteLog } from '../routing/hang/first-byte-log.ts';
import type { RequestShape } from '../routing/hang/first-byte-times.ts';
import { isHanging, type PeerEvidence, probeMs } from '../routing/hang/hang-detector.ts';
import { afterProbe, type HangSuspicion, suspectedAt } from '../routing/hang/hang-suspicion.ts';
import type { AttemptFailure, AttemptRequest } from './attempt.ts';
import type { UpstreamStream } from './upstream-stream.ts';

/** Peers are asked what they see only after a silence that is long for most requests. */
const COMPARE_AFTER_MS = 10_000;
/** And then so often, or ten times within the silence: a prefill of ten minutes is no reason to ask them 300 times. */
const COMPARE_EVERY_MS = 2_000;
const COMPARE_SHARE = 0.1;

/** A stream that gave a byte within this goes on. */
const STANDS_MS = 10_000;

/** Why an attempt is not admitted. */
export const SUSPECTED = 'its engine answers no request, and another request tries it';

export interface HangWatchHost {
  now(): number;
  /** `judge` is to be called with what the node's peers see. */
  compare(): void;
  /** What is known of its engine has changed; undefined: it answers again. */
  onSuspicion(suspicion: HangSuspicion | undefined): void;
}

export class HangWatch {
  readonly #host: HangWatchHost;
  readonly #log = new FirstByteLog<UpstreamStream>();
  #suspicion: HangSuspicion | undefined;
  #probe: UpstreamStream | undefined;
  #compareAt = 0;
  /** Bytes of answers: of those that are over, and all that had come at the last tick. */
  #overBytes = 0;
  #bytes = 0;

  /** `suspicion`: of the watch before this one. */
  constructor(host: HangWatchHost, suspicion?: HangSuspicion) {
    this.#host = host;
    this.#suspicion = suspicion;
  }

  get suspicion(): HangSuspicion | undefined {
    return this.#suspicion;
  }

  /** Whether an attempt may begin here. One that no other node can serve always may. */
  admits({ movable, endpoint }: Pick<AttemptRequest, 'movable' | 'endpoint'>): boolean {
    if (this.#suspicion === undefined || movable !== true) return true;
    return runsModel(endpoint) && this.#probe === undefined && isOver(this.#suspicion, this.#host.now());
  }

  /** An attempt begins. */
  opened(upstream: UpstreamStream): void {
    if (this.#suspicion !== undefined && upstream.request.movable === true) this.#probe ??= upstream;
  }

  onFirstByte(upstream: UpstreamStream): void {
    if (!tells(upstream)) return this.#log.over(upstream);
    this.#log.answered(upstream, shapeOf(upstream), upstream.firstMs, this.#host.now());
    this.#works();
  }

  /** The engine gave a byte. */
  #works(): void {
    if (this.#suspicion === undefined) return;
    this.#probe = undefined;
    this.#become(undefined);
  }

  /** It ended, with or without an answer. */
  onOver(upstream: UpstreamStream, failure: AttemptFailure | undefined): void {
    if (this.#probe === upstream) this.#probe = undefined;
    if (tells(upstream)) this.#overBytes += upstream.answerBytes;
    if (failure === 'cancelled') this.#log.left(upstream, this.#host.now());
    else this.#log.over(upstream);
  }

  /** Called regularly while attempts are open. */
  tick(upstreams: Iterable<UpstreamStream>, connected: boolean): void {
    const now = this.#host.now();
    let bytes = this.#overBytes;
    for (const upstream of upstreams) {
      if (tells(upstream)) bytes += upstream.answerBytes;
      if (upstream.awaitsFirstByte && runsModel(upstream.request.endpoint) && !this.#log.has(upstream))
        this.#log.waits(upstream, shapeOf(upstream), upstream.request.moved === true, now);
    }
    this.#log.tick(now, connected);
    if (bytes > this.#bytes) {
      this.#log.works(); // with the streams that it has: new ones may wait for a place in its batch
      this.#works();
    }
    this.#bytes = bytes;
    if (this.#suspicion !== undefined) return this.#watchProbe(this.#suspicion, now);
    const { silentMs } = this.#log;
    if (silentMs < COMPARE_AFTER_MS || now < this.#compareAt) return;
    this.#compareAt = now + Math.max(COMPARE_EVERY_MS, COMPARE_SHARE * silentMs);
    this.#host.compare();
  }

  #watchProbe(suspicion: HangSuspicion, now: number): void {
    const probe = this.#probe;
    if (probe === undefined) return;
    const waitedMs = this.#log.waitedMs(probe, now);
    if (waitedMs === undefined || waitedMs < probeMs(shapeOf(probe), [this.#log.times])) return;
    this.#become(afterProbe(suspicion, now));
    move(probe, now);
  }

  /** What the node's peers see. `upstreams`: those that are open at the node. */
  judge(peers: readonly PeerEvidence[], upstreams: Iterable<UpstreamStream>): void {
    const now = this.#host.now();
    if (this.#suspicion !== undefined || !isHanging(this.#log.evidence(now), peers)) return;
    this.#become(suspectedAt(now));
    for (const upstream of [...upstreams]) move(upstream, now);
  }

  #become(suspicion: HangSuspicion | undefined): void {
    this.#suspicion = suspicion;
    this.#host.onSuspicion(suspicion);
  }

  /** For the judgement of another node. */
  asPeer(): PeerEvidence {
    return this.#log.asPeer(this.#host.now(), this.#suspicion !== undefined);
  }
}

/** A pause that lasts longer than `pauseMs` is of a process whose clock was set back since. */
function isOver({ until, pauseMs }: HangSuspicion, now: number): boolean {
  return now >= until || until - now > pauseMs;
}

/**
 * Ends an attempt that another node can have instead, or go on with. Its engine is told to stop before the next one is asked. A stream
 * that cannot be continued stays: it may go on, and its own time-out ends it.
 */
function move(upstream: UpstreamStream, now: number): void {
  const { movable, continues } = upstream.request;
  const waits = movable === true && !upstream.begun;
  const stands = continues === true && upstream.begun && upstream.silentMs(now) >= STANDS_MS;
  if (waits || stands) upstream.breakOff('hung', 'the engine took requests and answers none');
}

/** What came of it says something of the model's engine: an error may come from a server in front of it. */
function tells({ request, status }: UpstreamStream): boolean {
  return status > 0 && status < 400 && runsModel(request.endpoint);
}

function shapeOf({ request, bodyBytes: bytes }: UpstreamStream): RequestShape {
  return { endpoint: request.endpoint, streaming: request.streaming, bytes };
}

/** Batches take what the model computes. An engine's tokenizer goes on where the model hangs. */
function runsModel(endpoint: number): boolean {
  return endpointById(endpoint)?.batched === true;
}
