import type { Sampling } from '../../shared/openai/sampling-parameters.ts';

/** Session of requests that no engine received, which have no node. */
export const NO_SESSION = '';

/**
 * The usage record of one attempt that reached an engine, or of a request that reached none. It never contains a prompt
 * or a response.
 */
export interface UsageRow {
  /**
   * The node's session, and the attempt's stream there; together they name the row. NO_SESSION and a random number if
   * no engine received the request.
   */
  session: string;
  stream: number;
  /** Stream of an estimate that this row replaces. */
  replaces?: number;
  /** When the attempt ended; milliseconds since the epoch. */
  at: number;
  request: string;
  attempt: number;
  provider: string;
  key: string;
  user: string;
  project: string;
  model: string;
  /** Id of the endpoint in the endpoint table. */
  endpoint: number;
  streamed: boolean;
  /**
   * HTTP status of the engine; 0 if none arrived; null if unknown, because the gateway was restarted meanwhile. If no
   * engine received the request, the gateway's status. An unknown status does not count as a failure.
   */
  status: number | null;
  prompt: number;
  completion: number;
  cached: number;
  reasoning: number;
  /**
   * Milliseconds from the attempt's opening to its first data; 0 if no data arrived; null if unknown, like `status`.
   */
  firstMs: number | null;
  totalMs: number | null;
  aborted: boolean;
  estimated: boolean;
  complete: boolean;
  bytes: number;
  /** Sampling parameters of the request. Absent: the request has none, or its body was not read. */
  sampling?: Sampling;
  /** Name of the kind that was predicted when the request arrived. Absent: its model had no kinds. */
  kind?: string;
  /**
   * GPU time in milliseconds of one GPU; see shared/usage/gpu-share.ts. Absent: the node published no GPUs, or an older
   * version made the row.
   */
  gpuMs?: number;
  /** Milliseconds of audio in the request or in the response. Absent: none. */
  audioMs?: number;
  /** Images in the response. Absent: none. */
  images?: number;
  /** Milliseconds from the admission of the request until this attempt was opened: in queues and earlier attempts. */
  queueMs?: number;
  /** Ids of the blocks of 16 tokens with which the prompt begins. Empty: the engine has no tokenizer. */
  buckets?: string[];
  /** Why no engine received the request: the code of the gateway's error. */
  error?: string;
  /**
   * How many identical requests were refused within a second; `totalMs` and `queueMs` are then their means. Absent: one
   * request.
   */
  times?: number;
  traced: boolean;
  /**
   * Requests of an agent's ingress: the node that served the request and its provider, as the ingress reported them.
   * Only statements between institutions use them.
   */
  served?: { session: string; provider: string };
  /** True for a request of a peer institution that must leave no record: the row has counts, and no request. */
  untracked?: true;
}

/** Key of requests of a peer institution's users at this institution's nodes. */
const PEER_KEY = 'peer:';

/** Returns the key of the rows of a peer institution. No key of an account has this form. */
export function peerKey(peer: string): string {
  return `${PEER_KEY}${peer}`;
}

/**
 * True for rows that a node's agent made, of its ingress or of a peer institution's requests. No gateway of this
 * institution opened these requests, so names in the rows are not verified.
 */
export function isReportedByAgent({ key }: Pick<UsageRow, 'key'>): boolean {
  return key.startsWith('ingress:') || key.startsWith(PEER_KEY);
}

const HOUR_MS = 60 * 60_000;

/** Returns the name of the usage object for a time: one per hour, UTC. */
export function usageShardOf(at: number): string {
  return new Date(Math.floor(at / HOUR_MS) * HOUR_MS).toISOString().slice(0, 13);
}

export const HOURS_PER_DAY = 24;

/** Returns the usage objects' names of a day such as `2026-11-20`, UTC. */
export function shardsOf(day: string): string[] {
  const from = Date.parse(`${day}T00:00:00Z`);
  return shardsBetween(from, from + HOURS_PER_DAY * HOUR_MS - 1);
}

/** Returns the usage objects' names from one time to another, oldest first. */
export function shardsBetween(from: number, to: number): string[] {
  const shards: string[] = [];
  for (let at = Math.floor(from / HOUR_MS) * HOUR_MS; at <= to; at += HOUR_MS) shards.push(usageShardOf(at));
  return shards;
}
