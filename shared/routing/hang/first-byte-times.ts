/** How long requests waited for the first byte of their answer, by kind and size of request: a histogram that fits into a message. */

/** What the time to the first byte depends on. */
export interface RequestShape {
  /** Id in the endpoint table. */
  endpoint: number;
  /** A unary answer begins when it is complete, a streamed one with its first token. */
  streaming: boolean;
  /** Of the body. Prefill grows with the prompt. */
  bytes: number;
}

/** Counts by `endpoint/streaming/size class`, each by the logarithm of the time. Plain data: objects send it to each other. */
export type FirstByteCounts = Readonly<Record<string, readonly number[]>>;

/** Upper edge of the first bucket; each further one is twice as wide. */
const FIRST_EDGE_MS = 64;
/** The last one begins above half an hour, more than any time-out that is shipped. */
const BUCKETS = 17;

/** Bodies of the first class are below 4 KiB, each further class ends at four times that. */
const FIRST_CLASS_BYTES = 4096;
const CLASSES = 6;

/** When a class has counted so many, all its counts are halved: a node that was given another engine is known anew after some hundreds. */
const COUNTED_MAX = 512;

/** Fewer than these tell too little of a distribution's end. */
const KNOWN_MIN = 5;

export class FirstByteTimes {
  /** At most 2 × CLASSES for each endpoint of the table. */
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
 * The time that a share `q` of requests like this one waited at most, by the slowest of `nodes`, in ms. Where no node has had requests of this
 * size: that of the next smaller size known, and `perByteMs` for what this one is larger. Undefined: nothing alike is known.
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

/** The upper edge of the bucket that has it. */
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
