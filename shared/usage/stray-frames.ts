import type { AbandonedAttempts } from '../upstream/abandoned.ts';
import { WireError } from '../wire/error.ts';
import type { Frame } from '../wire/frames.ts';
import type { Link } from '../wire/link.ts';
import type { Settlement } from './settlement.ts';

type StreamFrame = Exclude<Extract<Frame, { stream: number }>, { type: 'report' }>;

/** Frames of streams that are not open here: late ones of a stream that has ended, or those of a stream that this side has forgotten. */
export class StrayFrames {
  readonly #settlement: Settlement;
  readonly #abandoned: AbandonedAttempts;
  readonly #max: number;
  #unknown = 0;

  /** `max`: frames of unknown streams on one link. Each is answered, and the answers would be kept for a peer that does not read. */
  constructor(settlement: Settlement, abandoned: AbandonedAttempts, max: number) {
    this.#settlement = settlement;
    this.#abandoned = abandoned;
    this.#max = max;
  }

  /** Frames come on another link from now on. */
  connect(): void {
    this.#unknown = 0;
  }

  /** @throws WireError for one too many */
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
