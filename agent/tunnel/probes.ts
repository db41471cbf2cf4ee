import { PendingReplies } from '../../shared/upstream/pending-replies.ts';
import type { ProbeVerdict } from '../../shared/wire/frames.ts';
import { patience } from '../patience.ts';

/** A gateway asks another agent and waits for it itself. */
const ANSWER = { leastMs: 2_000, mostMs: 20_000 };

/** The mesh asks on suspicion only; more at once is a storm that no answer helps against. */
const OPEN_MAX = 64;

/** Questions about other sessions that this agent has put to one gateway. */
export class Probes extends PendingReplies<ProbeVerdict> {
  constructor() {
    super({ max: OPEN_MAX, wait: ANSWER, late: 'unknown', unknown: 'unknown', patience });
  }
}
