import { PendingReplies } from '../../shared/attempts/pending-replies.ts';
import type { ProbeVerdict } from '../../shared/wire/frames.ts';
import { waitClock } from '../platform/wait-clock.ts';

/**
 * Bounds on the wait for an answer. A reachable agent answers within a round trip. The gossip core waits 600 ms
 * (`gatewayProbeMs`) for a verdict, longer if earlier verdicts were late.
 */
const ANSWER = { leastMs: 400, mostMs: 4_000 };

/** Maximum probes that wait for an answer. */
const WAITING_MAX = 32;

/**
 * Maximum probes of other sessions per second that one agent may request. When many members of a cluster fail, its
 * agents request one probe per failed member.
 */
const PROBES_PER_S = 20;

/** Probes of the agent of one tunnel, and the rate at which that agent may request probes of other sessions. */
export class PendingProbes extends PendingReplies<ProbeVerdict> {
  #second = 0;
  #asked = 0;

  constructor() {
    super({ max: WAITING_MAX, wait: ANSWER, late: 'silent', unknown: 'unknown', patience: waitClock });
  }

  mayAsk(now: number): boolean {
    const second = Math.floor(now / 1000);
    if (second !== this.#second) this.#asked = 0;
    this.#second = second;
    return ++this.#asked <= PROBES_PER_S;
  }
}
