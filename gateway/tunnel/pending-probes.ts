import { PendingReplies } from '../../shared/upstream/pending-replies.ts';
import type { ProbeVerdict } from '../../shared/wire/frames.ts';
import { waitClock } from '../platform/wait-clock.ts';

/** An agent that is there answers in a round trip. The gossip core waits 600 ms (`relayMs`) for a verdict, longer where verdicts came later. */
const ANSWER = { leastMs: 400, mostMs: 4_000 };

/** Probes that wait for an answer. */
const WAITING_MAX = 32;

/** Probes of other sessions that one agent may ask for, per second. A cluster that falls apart asks for each of its members once. */
const ASKS_PER_S = 20;

/** Questions to the agent of one tunnel, and the pace at which that agent may have us ask others. */
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
    return ++this.#asked <= ASKS_PER_S;
  }
}
