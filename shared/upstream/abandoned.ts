import type { OpenFrame, ReportName } from '../wire/frames.ts';
import type { Link } from '../wire/link.ts';
import type { AttemptFailure } from './attempt.ts';
import type { UpstreamStream } from './upstream-stream.ts';

/** The oldest are forgotten: their nodes end unclaimed work by themselves within 10 s. */
const ABANDONED_MAX = 1_000;

/** Given up by this side, while the node may have taken it up. */
export const GIVEN_UP_HERE: ReadonlySet<AttemptFailure> = new Set<AttemptFailure>([
  'cancelled',
  'not_accepted',
  'failed',
  'hung',
  'lost', // the node may wake up, and would go on without a reader
]);

interface Given {
  claim: Pick<OpenFrame, 'requestId' | 'attempt' | 'answerOffset'>;
  /** Another node was asked instead, or the client told of an error: an answer now is work done twice, or without a reader. */
  elsewhere: boolean;
}

/**
 * Attempts that this side gave up and whose end the node has not confirmed: what was said about that may have been lost with a
 * socket, or was never said for want of one. When the node is reachable again it hears of them before anything else, so that no
 * engine goes on without a reader, and no request is computed twice for longer than its node was away.
 */
export class AbandonedAttempts {
  /** By stream, oldest first. */
  readonly #attempts = new Map<number, Given>();

  /** An upstream is over. */
  ended(upstream: UpstreamStream, failure: AttemptFailure | undefined): void {
    if (failure === undefined || !GIVEN_UP_HERE.has(failure) || !upstream.opened) return;
    const { requestId, attempt } = upstream.request;
    const elsewhere = failure !== 'cancelled';
    const claim = { requestId, attempt, answerOffset: upstream.answerLength };
    this.#attempts.set(upstream.stream, { claim, elsewhere });
    const oldest = this.#attempts.keys().next().value;
    if (this.#attempts.size > ABANDONED_MAX && oldest !== undefined) this.#attempts.delete(oldest);
  }

  /**
   * The node reports on a stream, or says that it knows nothing of it. True where its engine had completed the answer without a reader.
   * `name`: of a report that is said again, under a number of a socket before.
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

  /** A socket is there: each is claimed under a number of this socket, and cancelled. `moved` is told of the new number. */
  tell(link: Link, nextStream: () => number, moved: (from: number, to: number) => void): void {
    for (const [from, given] of [...this.#attempts]) {
      const stream = nextStream();
      this.#attempts.delete(from);
      this.#attempts.set(stream, given);
      moved(from, stream);
      link.put({ ...CLAIM, ...given.claim, stream });
      link.put({ type: 'reset', stream, code: 'cancelled', message: '' });
    }
  }
}

/** Starts nothing where its attempt is unknown. */
export const CLAIM: Omit<OpenFrame, 'stream' | 'requestId' | 'attempt' | 'answerOffset'> = {
  type: 'open',
  resume: true,
  endpoint: 0,
  headers: [],
  edits: [],
  streaming: false,
  dropUsage: false,
  firstByteMs: 0,
  stallMs: 0,
  receipt: '',
  bodyLength: undefined,
};
