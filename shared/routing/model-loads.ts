/** Current load of each model's engines, summed up for people and dashboards. Routing does not use it. */
import { LOAD_KNOWN_MS } from './node-load.ts';
import type { ViewedNodes } from './registry-view.ts';

interface ModelLoad {
  id: string;
  /** Number of serving nodes with a load report of the last 5 s. Idle nodes do not report. */
  known: number;
  /** Requests in the nodes' batches and queues, from all senders. */
  running: number;
  waiting: number;
  /** Generated tokens per second; null if no node reports it. */
  tokens_per_second: number | null;
}

/** Minimum time between two computations, however many readers there are. */
export const LOADS_MS = 1_000;

/** The last result per index. */
const worked = new WeakMap<ViewedNodes, { at: number; text: string }>();

/** `modelLoads` as JSON, at most a second old. All readers within that second get the same string. */
export function modelLoadsText(index: ViewedNodes, now: number): string {
  const last = worked.get(index);
  if (last !== undefined && now >= last.at && now - last.at < LOADS_MS) return last.text;
  const text = JSON.stringify(modelLoads(index, now));
  worked.set(index, { at: now, text });
  return text;
}

/**
 * The loads of all known models, sorted by name. An engine that serves several models counts for each of them. Takes
 * time proportional to the number of serving nodes.
 */
export function modelLoads(index: ViewedNodes, now: number): ModelLoad[] {
  const loads: ModelLoad[] = [];
  for (const [id, { ready }] of index.models()) {
    const sum: ModelLoad = { id, known: 0, running: 0, waiting: 0, tokens_per_second: null };
    for (const { session } of ready) {
      const load = index.live.loadOf(session);
      if (load === undefined || now - load.at > LOAD_KNOWN_MS) continue;
      sum.known++;
      sum.running += load.running;
      sum.waiting += load.waiting;
      if (load.tokensPerSecond !== undefined)
        sum.tokens_per_second = (sum.tokens_per_second ?? 0) + load.tokensPerSecond;
    }
    if (sum.tokens_per_second !== null) sum.tokens_per_second = Math.round(sum.tokens_per_second * 10) / 10;
    if (sum.known > 0) loads.push(sum);
  }
  return loads.sort((a, b) => (a.id < b.id ? -1 : 1));
}
