import { CLAIM_FRAME } from '../../../shared/upstream/abandoned-attempts.ts';
import type { OpenFrame } from '../../../shared/wire/frames.ts';

/** A peer with attempts that says nothing for so long is asked for a sign of life, and has as long to give it. */
export const PEER_QUIET_MS = 5_000;

/** Claims a stream that was never opened: that is answered at once, with RESET unknown, and starts nothing. */
export const LIVENESS_CLAIM: Omit<OpenFrame, 'stream'> = {
  ...CLAIM_FRAME,
  requestId: 'are-you-there',
  attempt: 0,
  answerOffset: 0,
};
