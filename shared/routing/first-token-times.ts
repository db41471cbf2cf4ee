/** Times to the first token of streams, as this gateway or agent measured them recently. */
import type { LiveNode } from './live-nodes.ts';

/** Weight of the newest time in the mean. */
const NEWEST = 0.3;
/** After this time without a stream, a node's time is unknown: its load may have changed. */
const KNOWN_MS = 60_000;

/** `ms`: from the start of the attempt to the first data of the stream. */
export function noteFirstToken(node: LiveNode, ms: number, now: number): void {
  const { firstToken } = node;
  const before = firstToken !== undefined && now - firstToken.at < KNOWN_MS ? firstToken.ms : ms;
  node.firstToken = { ms: before + NEWEST * (ms - before), at: now };
}

/** True if the node's streams begin within `ms`, or if it is not known when they begin. */
export function beginsWithin({ firstToken }: LiveNode, ms: number, now: number): boolean {
  return firstToken === undefined || now - firstToken.at >= KNOWN_MS || firstToken.ms <= ms;
}
