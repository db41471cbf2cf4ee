/** A histogram of the time to first byte, by kind and size of request, small enough to fit in a message. */

/** The properties that determine the time to first byte. */
export interface RequestShape {
  /** Id of the request's endpoint in the endpoint table. */
  endpoint: number;
  /** A non-streaming response begins when it is complete, a streamed one with its first token. */
  streaming: boolean;
  /** Length of the body in bytes. A longer body is a longer prompt, and takes longer to prefill. */
  bytes: number;
}

/**
 * Counts per `endpoint/streaming/size class`, in buckets by the logarithm of the time. Plain data, which objects send
 * to each other.
 */
export type FirstByteCounts = Readonly<Record<string, readonly number[]>>;

/** Upper edge of the first bucket. The edge of each further bucket is twice the previous one. */
const FIRST_EDGE_MS = 64;
/** Number of buckets. The last one starts above half an hour, more than any default timeout. */
const BUCKETS = 17;

/** The first size class ends at 4 KiB. Each further class ends at four times the previous one. */
const FIRST_CLASS_BYTES = 4096;
const CLASSES = 6;

/**
 * At this count all counts of a class are halved, so that a node with a new engine is relearned after a few hundred
 * requests.
 */
const COUNTED_MAX = 512;

/** Minimum number of samples of a class. With fewer, its high quantiles are unknown. */
const KNOWN_MIN = 5;

export class FirstByteTimes {
  /** Counts by request class; at most 2 × CLASSES entries per endpoint. */
  readonly #counts = new Map<string, number[]>();

  add(shape: RequestShape, ms: number): void {
    const key = keyOf(shape, classOf(shape.bytes));
    const counts = this.#counts.get(key) ?? Array.from({ length: BUCKETS }, () => 0);
    this.#counts.set(key, counts);
    const bucket = bucketOf(ms);
    counts[bucket] = (counts[bucket] ?? 0) + 1;
    if (total(counts) <= COUNTED_MAX) return;
    for (const [at, count] of counts.entries()) counts[at] = count / 2;
  }

  get counts(): FirstByteCounts {
    return Object.fromEntries(this.#counts);
  }
}

/**
 * The `q` quantile of the time to first byte, in ms, for requests of this shape, at the slowest of `nodes`. If no node
 * has enough samples of this size, uses the next smaller size that is known, plus `perByteMs` for each additional byte.
 * Undefined if no smaller size is known either.
 */
export function quantileMs(
  nodes: readonly FirstByteCounts[],
  shape: RequestShape,
  q: number,
  perByteMs: number,
): number | undefined {
  for (let size = classOf(shape.bytes); size >= 0; size--) {
    const known = nodes.flatMap((counts) => quantileOf(counts[keyOf(shape, size)], q) ?? []);
    if (known.length === 0) continue;
    const more = size === classOf(shape.bytes) ? 0 : Math.max(0, shape.bytes - upperBytes(size));
    return Math.max(...known) + more * perByteMs;
  }
  return undefined;
}

/** Upper edge of the bucket that contains the quantile. */
function quantileOf(counts: readonly number[] | undefined, q: number): number | undefined {
  if (counts === undefined || total(counts) < KNOWN_MIN) return undefined;
  let left = q * total(counts);
  for (const [bucket, count] of counts.entries()) {
    left -= count;
    if (left <= 0) return FIRST_EDGE_MS * 2 ** bucket;
  }
  return FIRST_EDGE_MS * 2 ** (BUCKETS - 1);
}

function total(counts: readonly number[]): number {
  return counts.reduce((sum, count) => sum + count, 0);
}

function bucketOf(ms: number): number {
  const bucket = Math.ceil(Math.log2(Math.max(ms, 1) / FIRST_EDGE_MS));
  return Math.min(BUCKETS - 1, Math.max(0, bucket));
}

function classOf(bytes: number): number {
  let size = 0;
  while (size < CLASSES - 1 && bytes >= upperBytes(size)) size++;
  return size;
}

function upperBytes(size: number): number {
  return FIRST_CLASS_BYTES * 4 ** size;
}

function keyOf({ endpoint, streaming }: RequestShape, size: number): string {
  return `${endpoint}/${streaming ? 's' : 'u'}/${size}`;
}
