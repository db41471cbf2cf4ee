/** Limits for each frame type: the largest frame that a peer may send, and the number of frames. */
import { TokenBucket } from '../collections/token-bucket.ts';
import type { Frame } from './frames.ts';
import {
  BLOCK_DIGEST_BYTES,
  BLOCKS_MAX,
  DATA_MAX_BYTES,
  DEPLOY_MAX_BYTES,
  DEPLOYED_MAX_BYTES,
  EDITS_MAX,
  HEADER_NAME_MAX_BYTES,
  HEADERS_MAX,
  RECORD_FRAME_MAX_BYTES,
  TEXT_MAX_BYTES,
  USAGE_MAX_BYTES,
} from './protocol-constants.ts';
import { WireError } from './wire-error.ts';

interface FrameLimit {
  /** Maximum size of the whole frame in bytes, including its type and stream number. */
  bytes: number;
  /** Average number of frames per second. */
  perSecond: number;
  /** Maximum number of frames in one burst. */
  burst: number;
}

/** Maximum bytes of a frame's type, stream, numbers and lengths: eight varints of at most 8 bytes. */
const FIXED_BYTES = 64;
const HEADERS_MAX_BYTES = HEADERS_MAX * (HEADER_NAME_MAX_BYTES + TEXT_MAX_BYTES);

/**
 * Limits for frame types that each request sends a few times. After a lost socket all streams of a node resend theirs
 * together.
 */
const PER_REQUEST = { perSecond: 10_000, burst: 60_000 };
/** Limits for frames of the handshake, which are sent once. */
const ONCE = { perSecond: 1, burst: 4 };
/**
 * Limits for a question and its answer. If a cluster loses its connections, an agent may ask once about each member.
 */
const QUESTION = { perSecond: 200, burst: 1_000 };

/**
 * Limits of each frame type, at least twice the values of the busiest honest peer. A peer that exceeds a limit loses
 * its socket. Frames that use no credit still use processing time that other peers need. A frame with a reply also uses
 * memory if the peer does not read replies.
 */
export const FRAME_LIMITS = {
  open: { bytes: FIXED_BYTES + 2 * TEXT_MAX_BYTES + HEADERS_MAX_BYTES + EDITS_MAX * TEXT_MAX_BYTES, ...PER_REQUEST },
  accept: { bytes: FIXED_BYTES, ...PER_REQUEST },
  head: { bytes: FIXED_BYTES + HEADERS_MAX_BYTES, ...PER_REQUEST },
  /**
   * Credit limits the bytes. The number of frames suffices for 2,000 streams with 100 tokens per second each, one frame
   * per token.
   */
  data: { bytes: FIXED_BYTES + DATA_MAX_BYTES, perSecond: 200_000, burst: 1_000_000 },
  end: { bytes: FIXED_BYTES, ...PER_REQUEST },
  reset: { bytes: FIXED_BYTES + TEXT_MAX_BYTES, ...PER_REQUEST },
  /** A stream gets one frame for each half of its window, and the socket one for each 64th of its window. */
  credit: { bytes: FIXED_BYTES, perSecond: 20_000, burst: 100_000 },
  report: { bytes: FIXED_BYTES + 2 * TEXT_MAX_BYTES, ...PER_REQUEST },
  /** Each frame contains many reports, and is sent four times per second. */
  settled: { bytes: 512 * 1024, perSecond: 1_000, burst: 10_000 },
  record: { bytes: FIXED_BYTES + RECORD_FRAME_MAX_BYTES, perSecond: 50, burst: 2_500 },
  recorded: { bytes: FIXED_BYTES, perSecond: 50, burst: 2_500 },
  challenge: { bytes: FIXED_BYTES + 64, ...ONCE },
  hello: { bytes: FIXED_BYTES + 192, ...ONCE },
  welcome: { bytes: FIXED_BYTES + 64, ...ONCE },
  /** Usually an update causes four frames per peer. */
  gossip: { bytes: FIXED_BYTES + DATA_MAX_BYTES, perSecond: 2_000, burst: 10_000 },
  probe: { bytes: FIXED_BYTES + 32, ...QUESTION },
  probed: { bytes: FIXED_BYTES, ...QUESTION },
  /** An agent sends the next frame only after the previous one was stored. */
  usage: { bytes: FIXED_BYTES + USAGE_MAX_BYTES, perSecond: 100, burst: 700 },
  stored: { bytes: FIXED_BYTES, perSecond: 100, burst: 700 },
  /** Sent twice per second, in addition to the answers of requests. */
  load: { bytes: FIXED_BYTES, perSecond: 20, burst: 200 },
  rate: { bytes: FIXED_BYTES, perSecond: 20, burst: 200 },
  circuit: { bytes: FIXED_BYTES + 32, perSecond: 20, burst: 200 },
  deploy: { bytes: FIXED_BYTES + DEPLOY_MAX_BYTES, perSecond: 20, burst: 200 },
  deployed: { bytes: FIXED_BYTES + DEPLOYED_MAX_BYTES, perSecond: 20, burst: 200 },
  /** One frame per reported prompt. */
  prefixes: { bytes: FIXED_BYTES + BLOCKS_MAX * BLOCK_DIGEST_BYTES, perSecond: 2_000, burst: 10_000 },
} as const satisfies Record<Frame['type'], FrameLimit>;

/**
 * Maximum bytes of control frames that wait for a full socket. Above it the socket is closed, because a peer that reads
 * is never this far behind.
 */
export const UNSENT_MAX_BYTES = 8 * 1024 * 1024;

/**
 * Counts one peer's frames against FRAME_LIMITS. An owner that outlives its sockets keeps the meter, so that a peer
 * cannot reset its limits by reconnecting.
 */
export class FrameMeter {
  readonly #now: () => number;
  readonly #buckets = new Map<Frame['type'], TokenBucket>();
  #at: number;

  /** `now`: milliseconds of any clock. */
  constructor(now: () => number) {
    this.#now = now;
    this.#at = now();
  }

  /** Call when a message has arrived. The clock is read only once for all frames of the message. */
  begin(): void {
    this.#at = this.#now();
  }

  /** Counts one frame. @throws WireError too_many */
  take(type: Frame['type']): void {
    let bucket = this.#buckets.get(type);
    if (bucket === undefined) {
      const { perSecond, burst } = FRAME_LIMITS[type];
      bucket = new TokenBucket(perSecond, burst, this.#at);
      this.#buckets.set(type, bucket);
    }
    if (!bucket.take(1, this.#at))
      throw new WireError('too_many', `more than ${FRAME_LIMITS[type].perSecond} ${type} frames a second`);
  }
}
