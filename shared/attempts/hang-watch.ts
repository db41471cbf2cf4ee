/**
 * Watches one node for a hung engine. If the engine hangs, requests that wait for their first byte move to other nodes,
 * and
 * until the engine answers again only one request at a time probes it. `shared/routing/hang/hang-detector.ts` decides
 * whether the evidence is enough.
 *
 *     trusted → (hangs) → avoided → (until) → probed → (a first byte) trusted
 *                                        └→ (none in time) avoided, longer
 */
import { endpointById } from '../openai/endpoints.ts';
import { FirstByteLog } from '../routing/hang/first-byte-log.ts';
import type { RequestShape } from '../routing/hang/first-byte-times.ts';
import { isHanging, type PeerEvidence, probeMs } from '../routing/hang/hang-detector.ts';
import { afterFailedProbe, type HangSuspicion, newSuspicion } from '../routing/hang/hang-suspicion.ts';
import type { AttemptFailure, AttemptRequest } from './attempt-request.ts';
import type { OutboundAttempt } from './outbound-attempt.ts';

/** Peers are asked for their evidence only after a silence of this length, which is long for most requests. */
const COMPARE_AFTER_MS = 10_000;
/**
 * Afterwards peers are asked at this interval, or ten times during the silence if that is less often, so that a prefill
 * of ten minutes does not cause 300 questions.
 */
const COMPARE_EVERY_MS = 2_000;
const COMPARE_SHARE = 0.1;

/** A stream that received a byte within this time is not moved. */
const RECENT_BYTE_MS = 10_000;

/** Message of an attempt that is refused because its engine is being probed. */
export const SUSPECTED_REASON = 'its engine does not answer, and one other request probes it';

interface HangWatchHost {
  now(): number;
  /** Requests the evidence of other nodes, which the host passes to `judge`. */
  compare(): void;
  /** The suspicion changed; undefined if the engine answers again. */
  onSuspicion(suspicion: HangSuspicion | undefined): void;
}

export class HangWatch {
  readonly #host: HangWatchHost;
  readonly #log = new FirstByteLog<OutboundAttempt>();
  #suspicion: HangSuspicion | undefined;
  #probe: OutboundAttempt | undefined;
  #compareAt = 0;
  /** Answer bytes: `#overBytes` of finished attempts, `#bytes` of all attempts at the last tick. */
  #overBytes = 0;
  #bytes = 0;

  /** `suspicion`: the suspicion of the previous watch, if any. */
  constructor(host: HangWatchHost, suspicion?: HangSuspicion) {
    this.#host = host;
    this.#suspicion = suspicion;
  }

  get suspicion(): HangSuspicion | undefined {
    return this.#suspicion;
  }

  /** True if an attempt may start at this node. An attempt that no other node can serve is always admitted. */
  admits({ movable, endpoint }: Pick<AttemptRequest, 'movable' | 'endpoint'>): boolean {
    if (this.#suspicion === undefined || movable !== true) return true;
    return runsModel(endpoint) && this.#probe === undefined && isOver(this.#suspicion, this.#host.now());
  }

  /** An attempt starts at this node. */
  opened(upstream: OutboundAttempt): void {
    if (this.#suspicion !== undefined && upstream.request.movable === true) this.#probe ??= upstream;
  }

  onFirstByte(upstream: OutboundAttempt): void {
    if (!tells(upstream)) return this.#log.over(upstream);
    this.#log.answered(upstream, shapeOf(upstream), upstream.firstMs, this.#host.now());
    this.#engineProgressed();
  }

  /** The engine sent bytes, so it does not hang. */
  #engineProgressed(): void {
    if (this.#suspicion === undefined) return;
    this.#probe = undefined;
    this.#setSuspicion(undefined);
  }

  /** The attempt ended, with or without an answer. */
  onOver(upstream: OutboundAttempt, failure: AttemptFailure | undefined): void {
    if (this.#probe === upstream) this.#probe = undefined;
    if (tells(upstream)) this.#overBytes += upstream.answerBytes;
    if (failure === 'cancelled') this.#log.left(upstream, this.#host.now());
    else this.#log.over(upstream);
  }

  /** Call this periodically while attempts are open. */
  tick(upstreams: Iterable<OutboundAttempt>, connected: boolean): void {
    const now = this.#host.now();
    let bytes = this.#overBytes;
    for (const upstream of upstreams) {
      if (tells(upstream)) bytes += upstream.answerBytes;
      if (upstream.awaitsFirstByte && runsModel(upstream.request.endpoint) && !this.#log.has(upstream))
        this.#log.waits(upstream, shapeOf(upstream), upstream.request.moved === true, now);
    }
    this.#log.tick(now, connected);
    if (bytes > this.#bytes) {
      this.#log.works(); // The engine works on older streams, and new ones may wait for a place in its batch.
      this.#engineProgressed();
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
    this.#setSuspicion(afterFailedProbe(suspicion, now));
    move(probe, now);
  }

  /**
   * Decides with the evidence of other nodes whether this engine hangs. `upstreams`: the open attempts at this node.
   */
  judge(peers: readonly PeerEvidence[], upstreams: Iterable<OutboundAttempt>): void {
    const now = this.#host.now();
    if (this.#suspicion !== undefined || !isHanging(this.#log.evidence(now), peers)) return;
    this.#setSuspicion(newSuspicion(now));
    for (const upstream of [...upstreams]) move(upstream, now);
  }

  #setSuspicion(suspicion: HangSuspicion | undefined): void {
    this.#suspicion = suspicion;
    this.#host.onSuspicion(suspicion);
  }

  /** This node's evidence, for deciding about another node. */
  asPeer(): PeerEvidence {
    return this.#log.asPeer(this.#host.now(), this.#suspicion !== undefined);
  }
}

/** True if the pause is over. A pause that seems to last longer than `pauseMs` began before the clock was set back. */
function isOver({ until, pauseMs }: HangSuspicion, now: number): boolean {
  return now >= until || until - now > pauseMs;
}

/**
 * Ends an attempt that another node can take or continue. The engine is cancelled before the next node is asked. A
 * stream
 * that cannot be continued stays open until its own time-out.
 */
function move(upstream: OutboundAttempt, now: number): void {
  const { movable, continues } = upstream.request;
  const waits = movable === true && !upstream.begun;
  const stands = continues === true && upstream.begun && upstream.silentMs(now) >= RECENT_BYTE_MS;
  if (waits || stands) upstream.breakOff('hung', 'the engine accepted requests but answers none');
}

/** True if the answer comes from the model's engine. An error may come from a server in front of it. */
function tells({ request, status }: OutboundAttempt): boolean {
  return status > 0 && status < 400 && runsModel(request.endpoint);
}

function shapeOf({ request, bodyBytes: bytes }: OutboundAttempt): RequestShape {
  return { endpoint: request.endpoint, streaming: request.streaming, bytes };
}

/** True for endpoints that run the model in batches. An engine's tokenizer still answers when the model hangs. */
function runsModel(endpoint: number): boolean {
  return endpointById(endpoint)?.batched === true;
}
