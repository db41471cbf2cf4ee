/**
 * Whether an engine hangs: it takes requests and answers none, while `/health` and `/v1/models` are fine. Pure: the evidence is handed in.
 *
 * A long prefill looks the same at first. What tells them apart is how long requests like these wait elsewhere and waited here:
 *
 * 1. Silence is time during which requests waited at the node and not one byte of any answer came. The first byte of any answer ends it:
 *    an engine that answers some is slow, and load balancing is for that.
 * 2. No prefill may be what the others wait for: the oldest request that still waits has had the time that a prompt of its size takes.
 * 3. Some request has waited several times longer than nearly all of its kind and size do, at this node or at the slowest of its peers. Of
 *    many that wait a lesser share is enough: that eight all lie in the upper half is as rare as that one lies in the last hundredth.
 * 4. A peer answers, so that the cause is not common to all. If none has been asked, one that could be asked will do, a little later.
 */
import { type FirstByteCounts, quantileMs, type RequestShape } from './first-byte-times.ts';

/** Nothing is concluded from a shorter silence: peers that answer within milliseconds say little about a stall of a few seconds. */
const SILENCE_MS = 20_000;
/** The same where no peer was asked meanwhile: the request is tried there. */
const SILENCE_UNCOMPARED_MS = 25_000;

/** Requests that were moved away from another node may themselves be the cause: alone they accuse a second one so many times later. */
const MOVED_FACTOR = 3;

/** A node may be so many times slower than its slowest peer, or than itself before. */
const SLOWER_FACTOR = 3;

/** A request that waited less says nothing, however fast its peers are. */
const WAITED_MIN_MS = 2_000;

/** Prefill of a prompt of unseen size: 2 KiB, some 500 tokens, a second. Slower engines are known after their first answers. */
const PER_BYTE_MS = 1000 / 2048;
/** More than this no unknown prompt is given: a body may hold a picture. */
const UNKNOWN_MAX_MS = 300_000;

/** By chance a healthy node leaves its requests waiting so long once in so many times. */
const CHANCE = 0.01;

/** One request that the node has not answered. */
export interface UnansweredRequest {
  shape: RequestShape;
  /** Since the engine had all of it; until its client left, if it did. */
  waitedMs: number;
  /** Its client still waits. */
  waiting: boolean;
  /** It hung at another node before. */
  moved: boolean;
}

export interface NodeEvidence {
  /** How long requests have waited here without a byte for any of them, idle times left out. 0: none waits, or the engine answers. */
  silentMs: number;
  /** Of that silence. */
  unanswered: readonly UnansweredRequest[];
  times: FirstByteCounts;
}

export interface PeerEvidence {
  silentMs: number;
  /** Since its engine last began an answer; undefined: it has not. */
  answeredAgoMs: number | undefined;
  /** It is taken to hang itself. */
  suspected: boolean;
  times: FirstByteCounts;
}

/** `peers` serve what the node serves. */
export function isHanging(node: NodeEvidence, peers: readonly PeerEvidence[]): boolean {
  const { silentMs, unanswered } = node;
  const factor = unanswered.every(({ moved }) => moved) ? MOVED_FACTOR : 1;
  if (silentMs < factor * leastSilence(node, peers)) return false;
  const known = [node.times, ...peers.map(({ times }) => times)];
  return !mayPrefill(unanswered, known) && kinds(unanswered).some((alike) => isOverdue(alike, known));
}

/** How long the probe of a suspected node may take to its first byte. */
export function probeMs(shape: RequestShape, peers: readonly FirstByteCounts[]): number {
  return Math.min(SILENCE_MS, Math.max(WAITED_MIN_MS, allowedMs(shape, peers, 1 - CHANCE)));
}

function leastSilence({ silentMs }: NodeEvidence, peers: readonly PeerEvidence[]): number {
  if (peers.some(({ answeredAgoMs = Number.POSITIVE_INFINITY }) => answeredAgoMs < silentMs)) return SILENCE_MS;
  if (peers.some((peer) => peer.silentMs === 0 && !peer.suspected)) return SILENCE_UNCOMPARED_MS;
  return Number.POSITIVE_INFINITY;
}

/** The oldest that waits may still be in its prefill, and the others behind it. */
function mayPrefill(unanswered: readonly UnansweredRequest[], known: readonly FirstByteCounts[]): boolean {
  const waiting = unanswered.filter((request) => request.waiting);
  const oldest = waiting.reduce<UnansweredRequest | undefined>(
    (before, request) => (before === undefined || request.waitedMs > before.waitedMs ? request : before),
    undefined,
  );
  if (oldest === undefined) return false;
  const prompt = { ...oldest.shape, streaming: true }; // a unary answer's time is that of its tokens, and no request waits for those
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

/** Some number of them have waited longer than chance explains. */
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

/** How long a request like this may wait at a healthy node. */
function allowedMs(shape: RequestShape, known: readonly FirstByteCounts[], share: number): number {
  const usual = quantileMs(known, shape, share, PER_BYTE_MS);
  if (usual !== undefined) return SLOWER_FACTOR * usual;
  return Math.min(UNKNOWN_MAX_MS, shape.bytes * PER_BYTE_MS);
}
