import type { AbandonedAttempts } from '../attempts/abandoned-attempts.ts';
import type { UsageSettlement } from '../usage/usage-settlement.ts';
import type { Frame } from '../wire/frames.ts';
import type { Link } from '../wire/link.ts';
import { WireError } from '../wire/wire-error.ts';

type StreamFrame = Exclude<Extract<Frame, { stream: number }>, { type: 'report' }>;

/** Handles frames of streams that are not open here, because the stream has ended or this side has forgotten it. */
export class StrayFrames {
  readonly #settlement: UsageSettlement;
  readonly #abandoned: AbandonedAttempts;
  readonly #max: number;
  #unknown = 0;

  /**
   * `max`: maximum number of frames of unknown streams per link. It is bounded because each frame is answered, and the
   * answers accumulate if the peer does not read.
   */
  constructor(settlement: UsageSettlement, abandoned: AbandonedAttempts, max: number) {
    this.#settlement = settlement;
    this.#abandoned = abandoned;
    this.#max = max;
  }

  /** Call when frames arrive on another link from now on. */
  connect(): void {
    this.#unknown = 0;
  }

  /** Handles one frame of a stream that is not open. @throws WireError above the limit */
  receive(link: Link, frame: StreamFrame, now: number): void {
    const { stream } = frame;
    if (frame.type === 'data') link.consumed(frame.bytes.length);
    if (frame.type === 'reset') {
      this.#abandoned.confirmed(stream, false);
      if (frame.code === 'unknown') this.#settlement.unknown(stream, now);
      return;
    }
    if (this.#settlement.awaits(stream)) return;
    if (++this.#unknown > this.#max) throw new WireError('bad_state', 'too many frames of unknown streams');
    link.put({ type: 'reset', stream, code: 'unknown', message: '' });
  }
}
