import type { ModelDemand } from '../../shared/factory/factory-exchange.ts';
import { isRecent } from '../../shared/timing/is-recent.ts';

/** A signal is valid for this time; its sender repeats it every REPORT_MS. */
const SIGN_MS = 12_000;
/**
 * A request that did not wait is remembered for a day. The autoscaler decides for how long after such a request it
 * keeps the model running.
 */
const REQUEST_MEMORY_MS = 86_400_000;
/** Maximum models with signals: as many as the reports of all autoscalers may contain. */
const MODELS_MAX = 6_400;

/** Requests that wait in the queue of one model. */
export interface QueueDemand {
  waiting: number;
  oldestMs: number;
}

/** Open lines of batches for one model. */
export interface BacklogDemand {
  lines: number;
  /** Milliseconds until the first of these batches expires. */
  deadlineMs: number;
  linesPerS: number;
  /** Sessions that run lines of these batches. */
  nodes: readonly string[];
}

interface Signs {
  queue: (QueueDemand & { at: number }) | undefined;
  backlog: (BacklogDemand & { at: number }) | undefined;
  askedAt: number | undefined;
}

/**
 * Remembers why models are needed, as queues, batches and requests last reported it. Times are passed in as
 * milliseconds.
 */
export class DemandSignals {
  readonly #models = new Map<string, Signs>();

  queued(model: string, sign: QueueDemand, now: number): void {
    const signs = this.#signsOf(model);
    if (signs === undefined) return;
    signs.queue = { ...sign, at: now };
    if (sign.waiting > 0) signs.askedAt = now;
  }

  asked(model: string, now: number): void {
    const signs = this.#signsOf(model);
    if (signs !== undefined) signs.askedAt = now;
  }

  backlog(model: string, sign: BacklogDemand, now: number): void {
    const signs = this.#signsOf(model);
    if (signs !== undefined) signs.backlog = { ...sign, at: now };
  }

  /** Drops the signals of all models that are not in `models`. */
  retain(models: ReadonlySet<string>): void {
    for (const model of this.#models.keys()) if (!models.has(model)) this.#models.delete(model);
  }

  /** Returns the sessions that run lines of batches. */
  batchNodes(now: number): Set<string> {
    return new Set([...this.#models.values()].flatMap(({ backlog }) => (isLate(backlog, now) ? [] : backlog.nodes)));
  }

  of(model: string, readyReplicas: number, now: number): Omit<ModelDemand, 'in_flight' | 'busy'> {
    const { queue, backlog, askedAt } = this.#models.get(model) ?? NONE;
    const waiting = isLate(queue, now) ? 0 : queue.waiting;
    const oldestMs = isLate(queue, now) || waiting === 0 ? 0 : queue.oldestMs + (now - queue.at);
    const asked =
      askedAt !== undefined && now - askedAt < REQUEST_MEMORY_MS ? { asked_ms_ago: Math.max(0, now - askedAt) } : {};
    const lines = isLate(backlog, now) ? 0 : backlog.lines;
    return {
      model,
      waiting: readyReplicas === 0 ? waiting : 0,
      oldest_wait_ms: Math.max(0, Math.round(oldestMs)),
      ...asked,
      queued: readyReplicas === 0 ? 0 : waiting,
      ready_replicas: readyReplicas,
      ...(backlog !== undefined &&
        lines > 0 && {
          batch: {
            lines,
            deadline_ms: Math.max(0, backlog.deadlineMs - (now - backlog.at)),
            lines_per_s: backlog.linesPerS,
          },
        }),
    };
  }

  #signsOf(model: string): Signs | undefined {
    const known = this.#models.get(model);
    if (known !== undefined) return known;
    if (this.#models.size >= MODELS_MAX) return undefined;
    const made: Signs = { queue: undefined, backlog: undefined, askedAt: undefined };
    this.#models.set(model, made);
    return made;
  }
}

const NONE: Signs = { queue: undefined, backlog: undefined, askedAt: undefined };

function isLate<T extends { at: number }>(sign: T | undefined, now: number): sign is undefined {
  return sign === undefined || !isRecent(SIGN_MS, sign.at, now);
}
