/**
 * Watches one node for a hung engine. If the engine hangs, requests that wait for their first byte move to other nodes,
 * and until the engine answers again only one request at a time probes it. `shared/routing/hang/hang-detector.ts`
 * decides whether the evidence is enough.
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

/**
 * The nodes of the model are asked for their evidence only after a silence of this length, because most requests answer
 * sooner.
 */
const COMPARE_AFTER_MS = 10_000;
/**
 * After that they are asked at this interval, or each time the silence has grown by a tenth if that is less often. So a
 * prefill of ten minutes does not cause 300 questions.
 */
const COMPARE_EVERY_MS = 2_000;
const COMPARE_SHARE = 0.1;

/** A stream that received a byte within this time is not moved to another node. */
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
  /** Numbers of answer bytes: `#overBytes` of finished attempts, `#bytes` of all attempts at the last tick. */
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

  /** True if an attempt may start at this node. An attempt that no other node can take is always admitted. */
  admits({ movable, endpoint }: Pick<AttemptRequest, 'movable' | 'endpoint'>): boolean {
    if (this.#suspicion === undefined || movable !== true) return true;
    return runsModel(endpoint) && this.#probe === undefined && isOver(this.#suspicion, this.#host.now());
  }

  /**
   * Call when an attempt starts at this node. If the engine is suspected, no attempt probes it and another node can
   * take this one, this attempt is the probe.
   */
  opened(outbound: OutboundAttempt): void {
    if (this.#suspicion !== undefined && outbound.request.movable === true) this.#probe ??= outbound;
  }

  onFirstByte(outbound: OutboundAttempt): void {
    if (!tells(outbound)) return this.#log.over(outbound);
    this.#log.answered(outbound, shapeOf(outbound), outbound.firstMs, this.#host.now());
    this.#engineProgressed();
  }

  /** The engine sent bytes, so it does not hang. */
  #engineProgressed(): void {
    if (this.#suspicion === undefined) return;
    this.#probe = undefined;
    this.#setSuspicion(undefined);
  }

  /** Call when the attempt has ended, with or without an answer. */
  onOver(outbound: OutboundAttempt, failure: AttemptFailure | undefined): void {
    if (this.#probe === outbound) this.#probe = undefined;
    if (tells(outbound)) this.#overBytes += outbound.answerBytes;
    if (failure === 'cancelled') this.#log.left(outbound, this.#host.now());
    else this.#log.over(outbound);
  }

  /** Call this periodically while attempts are open. */
  tick(outbounds: Iterable<OutboundAttempt>, connected: boolean): void {
    const now = this.#host.now();
    let bytes = this.#overBytes;
    for (const outbound of outbounds) {
      if (tells(outbound)) bytes += outbound.answerBytes;
      if (outbound.awaitsFirstByte && runsModel(outbound.request.endpoint) && !this.#log.has(outbound))
        this.#log.waits(outbound, shapeOf(outbound), outbound.request.moved === true, now);
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
   * Decides with the evidence of other nodes whether this engine hangs. `outbounds`: the open attempts at this node.
   */
  judge(peers: readonly PeerEvidence[], outbounds: Iterable<OutboundAttempt>): void {
    const now = this.#host.now();
    if (this.#suspicion !== undefined || !isHanging(this.#log.evidence(now), peers)) return;
    this.#setSuspicion(newSuspicion(now));
    for (const outbound of [...outbounds]) move(outbound, now);
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

/**
 * True if the pause is over. If the pause seems to last longer than `pauseMs`, the clock was set back after the pause
 * began, and it also counts as over.
 */
function isOver({ until, pauseMs }: HangSuspicion, now: number): boolean {
  return now >= until || until - now > pauseMs;
}

/**
 * Ends the attempt if another node can take or continue it. The node's engine is cancelled before the next node is
 * asked. A stream that cannot be continued stays open until its own time-out.
 */
function move(outbound: OutboundAttempt, now: number): void {
  const { movable, continues } = outbound.request;
  const waits = movable === true && !outbound.begun;
  const stands = continues === true && outbound.begun && outbound.silentMs(now) >= RECENT_BYTE_MS;
  if (waits || stands) outbound.breakOff('hung', 'the engine accepted requests but answers none');
}

/** True if the answer comes from the model's engine. An error may come from a server in front of the engine. */
function tells({ request, status }: OutboundAttempt): boolean {
  return status > 0 && status < 400 && runsModel(request.endpoint);
}

function shapeOf({ request, bodyBytes: bytes }: OutboundAttempt): RequestShape {
  return { endpoint: request.endpoint, streaming: request.streaming, bytes };
}

/**
 * True for endpoints that run the model in batches. Other requests prove nothing: an engine's tokenizer still answers
 * when the model hangs.
 */
function runsModel(endpoint: number): boolean {
  return endpointById(endpoint)?.batched === true;
}
