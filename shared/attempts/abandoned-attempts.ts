import type { OpenFrame, ReportName } from '../wire/frames.ts';
import type { Link } from '../wire/link.ts';
import type { AttemptFailure } from './attempt-request.ts';
import type { OutboundAttempt } from './outbound-attempt.ts';

/**
 * Maximum number of remembered attempts; the oldest is forgotten first. The node of a forgotten attempt ends the
 * unclaimed work after 10 s.
 */
const ABANDONED_MAX = 1_000;

/** Failures after which this side gave up an attempt that the node may have accepted. */
export const LOCAL_ABANDONMENTS: ReadonlySet<AttemptFailure> = new Set<AttemptFailure>([
  'cancelled',
  'not_accepted',
  'failed',
  'hung',
  'lost', // The node may recover and continue the attempt without a reader.
]);

interface Given {
  claim: Pick<OpenFrame, 'requestId' | 'attempt' | 'answerOffset'>;
  /**
   * True if the request went to another node, or the client got an error. If the node still completes the answer, it is
   * duplicate work or has no reader.
   */
  elsewhere: boolean;
}

/**
 * Attempts that this side gave up without a confirmation by the node: the RESET may have been lost with a socket, or
 * there was no socket on which to send it. When the node is reachable again, these cancellations are the first frames
 * that it receives. So an engine does not continue without a reader after its node has returned, and no request is
 * computed twice for longer than its node was away.
 */
export class AbandonedAttempts {
  /** By stream number, oldest first. */
  readonly #attempts = new Map<number, Given>();

  /** Remembers an attempt that ended, if its node may still work on it. */
  ended(outbound: OutboundAttempt, failure: AttemptFailure | undefined): void {
    if (failure === undefined || !LOCAL_ABANDONMENTS.has(failure) || !outbound.opened) return;
    const { requestId, attempt } = outbound.request;
    const elsewhere = failure !== 'cancelled';
    const claim = { requestId, attempt, answerOffset: outbound.answerLength };
    this.#attempts.set(outbound.stream, { claim, elsewhere });
    const oldest = this.#attempts.keys().next().value;
    if (this.#attempts.size > ABANDONED_MAX && oldest !== undefined) this.#attempts.delete(oldest);
  }

  /**
   * Call when the node reports on a stream, or answers that the stream is unknown. `name` is set if the node repeats
   * the report; then `stream` belongs to an earlier socket. Returns true if the request went elsewhere and the node's
   * engine completed the answer nevertheless.
   */
  confirmed(stream: number, complete: boolean, name?: ReportName): boolean {
    if (this.#attempts.size === 0) return false;
    const number = name === undefined ? stream : (this.#numberOf(name) ?? stream);
    const given = this.#attempts.get(number);
    this.#attempts.delete(number);
    return given?.elsewhere === true && complete;
  }

  #numberOf({ requestId, attempt }: ReportName): number | undefined {
    for (const [stream, { claim }] of this.#attempts)
      if (claim.requestId === requestId && claim.attempt === attempt) return stream;
    return undefined;
  }

  /**
   * Call when a socket is available. Claims each attempt under a new stream number of this socket, and cancels it.
   * `moved` receives the old and the new number.
   */
  tell(link: Link, nextStream: () => number, moved: (from: number, to: number) => void): void {
    for (const [from, given] of [...this.#attempts]) {
      const stream = nextStream();
      this.#attempts.delete(from);
      this.#attempts.set(stream, given);
      moved(from, stream);
      link.put({ ...CLAIM_FRAME, ...given.claim, stream });
      link.put({ type: 'reset', stream, code: 'cancelled', message: '' });
    }
  }
}

/** `endpoint` of a claim without a request: no endpoint has this number. */
const NO_ENDPOINT = 0;

/** An OPEN frame that only claims. If the node does not know the attempt, it starts nothing. */
export const CLAIM_FRAME: Omit<OpenFrame, 'stream' | 'requestId' | 'attempt' | 'answerOffset'> = {
  type: 'open',
  resume: true,
  endpoint: NO_ENDPOINT,
  headers: [],
  edits: [],
  streaming: false,
  dropUsage: false,
  firstByteMs: 0,
  stallMs: 0,
  receipt: '',
  bodyLength: undefined,
};

/** True if the frame claims an attempt only to cancel it, so that its sender reads no response. */
export function isCancelOnly({ resume, endpoint }: Pick<OpenFrame, 'resume' | 'endpoint'>): boolean {
  return resume && endpoint === NO_ENDPOINT;
}
