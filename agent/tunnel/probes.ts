import { PendingReplies } from '../../shared/upstream/pending-replies.ts';
import type { ProbeVerdict } from '../../shared/wire/frames.ts';
import { after } from '../after.ts';

/** A gateway asks another agent and waits a second for it. */
const ANSWER_WITHIN_MS = 2000;

/** The mesh asks on suspicion only; more at once is a storm that no answer helps against. */
const OPEN_MAX = 64;

/** Questions about other sessions that this agent has put to one gateway. */
export class Probes extends PendingReplies<ProbeVerdict> {
  constructor() {
    super({ max: OPEN_MAX, answerMs: ANSWER_WITHIN_MS, late: 'unknown', unknown: 'unknown', after });
  }
}
