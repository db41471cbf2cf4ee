import { PendingReplies } from '../../shared/upstream/pending-replies.ts';
import { patience } from '../patience.ts';

/** An agent decides in a moment. After this time the operator is told that the outcome is not known. */
const ANSWER = { leastMs: 10_000, mostMs: 60_000 };

/** Orders to one agent that wait for their answer. */
const WAITING_MAX = 16;

/** Orders to the agent of one tunnel, each with its answer as JSON; null when none came. */
export class Deploys extends PendingReplies<string | null> {
  constructor() {
    super({ max: WAITING_MAX, wait: ANSWER, late: null, unknown: null, patience });
  }
}
