import { CLAIM_FRAME } from '../../../shared/attempts/abandoned-attempts.ts';
import type { OpenFrame } from '../../../shared/wire/frames.ts';

/** A peer with attempts that is silent for this long is probed, and then has the same time to answer. */
export const PEER_QUIET_MS = 5_000;

/** Claims a stream that was never opened. The peer immediately answers RESET unknown, and starts nothing. */
export const LIVENESS_CLAIM: Omit<OpenFrame, 'stream'> = {
  ...CLAIM_FRAME,
  requestId: 'are-you-there',
  attempt: 0,
  answerOffset: 0,
};
