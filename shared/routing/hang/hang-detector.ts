/**
 * Decides whether an engine hangs: it accepts requests and answers none, while `/health` and `/v1/models` are fine.
 * Pure: the evidence is an argument.
 *
 * A long prefill looks like a hanging engine at first. What separates them is how long similar requests wait at other
 * nodes, and how long they waited at this node before. An engine hangs if all of these hold:
 *
 * 1. Silence: requests waited at the node, and not one byte of any response came. The first byte of any response ends
 *    the silence. An engine that answers some requests is slow, which load balancing handles.
 * 2. The requests cannot be waiting behind a prefill: the oldest one has waited long enough for a prompt of its size.
 * 3. A request has waited several times longer than nearly all similar requests do, at this node or at its slowest
 *    peer. If many requests wait, a smaller excess is enough: eight requests in the upper half are as unlikely as one
 *    in the last hundredth.
 * 4. A peer answers, so the cause is not common to all nodes. If no peer was asked, a peer that could be asked is
 *    enough, after a somewhat longer silence.
 */
import { type FirstByteCounts, quantileMs, type RequestShape } from './first-byte-times.ts';

/**
 * Minimum silence. A shorter one proves nothing: peers that answer within milliseconds show little about a stall of a
 * few seconds.
 */
const SILENCE_MS = 20_000;
/**
 * Minimum silence if no peer has answered since the silence began, but a healthy one exists. The request is then tried
 * at that peer.
 */
const SILENCE_UNCOMPARED_MS = 25_000;

/**
 * Requests that were moved here from a hanging node may themselves be the cause. If only such requests wait, the limits
 * are multiplied by this factor.
 */
const MOVED_FACTOR = 3;

/** A node may be this many times slower than its slowest peer, or than it was before, without counting as hanging. */
const SLOWER_FACTOR = 3;

/** Minimum wait of a request. A shorter wait is not evidence, however fast the peers are. */
const WAITED_MIN_MS = 2_000;

/**
 * Assumed prefill speed for an unseen prompt size: 2 KiB, about 500 tokens, per second. Slower engines are known after
 * their first responses.
 */
const PER_BYTE_MS = 1000 / 2048;
/**
 * Upper bound of the time that PER_BYTE_MS gives. An image makes a body large, but does not make its prefill as long.
 */
const UNKNOWN_MAX_MS = 300_000;

/** Accepted probability that a healthy node appears to hang by chance. */
const CHANCE = 0.01;

/** A request that the node has not answered. */
export interface UnansweredRequest {
  shape: RequestShape;
  /** Milliseconds since the engine received the whole request, until now or until the client disconnected. */
  waitedMs: number;
  /** True if the client still waits. */
  waiting: boolean;
  /** True if the request was moved here because an engine at another node hung on it. */
  moved: boolean;
}

export interface NodeEvidence {
  /**
   * Milliseconds during which requests waited and no byte came for any of them. Idle time does not count. 0 if no
   * request waits, or if the engine has just answered.
   */
  silentMs: number;
  /** The requests that were not answered during `silentMs`. */
  unanswered: readonly UnansweredRequest[];
  times: FirstByteCounts;
}

export interface PeerEvidence {
  silentMs: number;
  /** Milliseconds since the engine last began a response; undefined: never. */
  answeredAgoMs: number | undefined;
  /** True if this peer is itself suspected of hanging. */
  suspected: boolean;
  times: FirstByteCounts;
}

/** @param peers nodes that serve the same models */
export function isHanging(node: NodeEvidence, peers: readonly PeerEvidence[]): boolean {
  const { silentMs, unanswered } = node;
  const factor = unanswered.every(({ moved }) => moved) ? MOVED_FACTOR : 1;
  if (silentMs < factor * leastSilence(node, peers)) return false;
  const known = [node.times, ...peers.map(({ times }) => times)];
  return !mayPrefill(unanswered, known) && kinds(unanswered).some((alike) => isOverdue(alike, known));
}

/** How long the probe of a suspected node may wait for its first byte, in milliseconds. */
export function probeMs(shape: RequestShape, peers: readonly FirstByteCounts[]): number {
  return Math.min(SILENCE_MS, Math.max(WAITED_MIN_MS, allowedMs(shape, peers, 1 - CHANCE)));
}

function leastSilence({ silentMs }: NodeEvidence, peers: readonly PeerEvidence[]): number {
  if (peers.some(({ answeredAgoMs = Number.POSITIVE_INFINITY }) => answeredAgoMs < silentMs)) return SILENCE_MS;
  if (peers.some((peer) => peer.silentMs === 0 && !peer.suspected)) return SILENCE_UNCOMPARED_MS;
  return Number.POSITIVE_INFINITY;
}

/** True if the oldest waiting request may still be in prefill while the others wait behind it. */
function mayPrefill(unanswered: readonly UnansweredRequest[], known: readonly FirstByteCounts[]): boolean {
  const waiting = unanswered.filter((request) => request.waiting);
  const oldest = waiting.reduce<UnansweredRequest | undefined>(
    (before, request) => (before === undefined || request.waitedMs > before.waitedMs ? request : before),
    undefined,
  );
  if (oldest === undefined) return false;
  // Uses the times of streaming responses, because the other requests wait only for this request's prefill, not for all
  // tokens of its response.
  const prompt = { ...oldest.shape, streaming: true };
  return oldest.waitedMs < allowedMs(prompt, known, 1 - CHANCE);
}

function kinds(unanswered: readonly UnansweredRequest[]): UnansweredRequest[][] {
  const byKind = new Map<string, UnansweredRequest[]>();
  for (const request of unanswered) {
    const kind = `${request.shape.endpoint}/${request.shape.streaming}`;
    const alike = byKind.get(kind);
    if (alike === undefined) byKind.set(kind, [request]);
    else alike.push(request);
  }
  return [...byKind.values()];
}

/** True if more of the requests are late than chance explains. */
function isOverdue(alike: readonly UnansweredRequest[], known: readonly FirstByteCounts[]): boolean {
  for (let count = 1; count <= alike.length; count *= 2) {
    const share = 1 - CHANCE ** (1 / count);
    const late = alike.filter(
      ({ shape, waitedMs }) => waitedMs >= Math.max(WAITED_MIN_MS, allowedMs(shape, known, share)),
    );
    if (late.length >= count) return true;
  }
  return false;
}

/** How long a request like this one may wait at a healthy node, in milliseconds. */
function allowedMs(shape: RequestShape, known: readonly FirstByteCounts[], share: number): number {
  const usual = quantileMs(known, shape, share, PER_BYTE_MS);
  if (usual !== undefined) return SLOWER_FACTOR * usual;
  return Math.min(UNKNOWN_MAX_MS, shape.bytes * PER_BYTE_MS);
}
