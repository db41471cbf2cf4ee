import { AttemptError, apiErrorFor } from '../../../shared/attempts/attempt-error.ts';
import type { AttemptFailure } from '../../../shared/attempts/attempt-request.ts';
import { InBandErrorDetector } from '../../../shared/attempts/in-band-error-detector.ts';
import type { OutboundAttempt } from '../../../shared/attempts/outbound-attempt.ts';
import { type ByteSink, PIECE_MAX_BYTES } from '../../../shared/attempts/response-body.ts';
import { endpointById } from '../../../shared/openai/endpoints.ts';
import { SEAL_TO_HEADER } from '../../../shared/seal/hpke-suite.ts';
import type { OffloadCompletion, OffloadEnding } from './offloaded-response.ts';

/** Credit that must be free before a piece is sent: for the piece, and for an error that may follow it. */
const ROOM_BYTES = PIECE_MAX_BYTES + 4 * 1024;

interface OffloadEvents {
  first(bytes: Uint8Array): void;
  /** Called if the response ended or was cut before any data. */
  none(code: AttemptFailure | undefined): void;
  data(offset: number, bytes: Uint8Array): void;
  end(offset: number): void;
  withdrawn(): void;
  left(): void;
}

/** One response that is sent to the client. Its states are: new, first data offered, taken, ended. */
export class OffloadedStream implements ByteSink {
  readonly #attempt: OutboundAttempt;
  readonly #on: OffloadEvents;
  #state: 'new' | 'offered' | 'taken' | 'over' = 'new';
  /** Bytes that were sent after the first data. */
  #sent = 0;
  #limit = 0;
  #broken: AttemptFailure | undefined;
  readonly #inBand: InBandErrorDetector | undefined;
  /** Set when the first data is offered. */
  completion: OffloadCompletion | undefined;

  constructor(attempt: OutboundAttempt, on: OffloadEvents) {
    this.#attempt = attempt;
    this.#on = on;
    const { endpoint: id, headers } = this.#attempt.request;
    const endpoint = endpointById(id);
    if (endpoint !== undefined)
      this.#inBand = new InBandErrorDetector(
        endpoint,
        headers.some(([name]) => name === SEAL_TO_HEADER),
      );
  }

  get wantsData(): boolean {
    return this.#state === 'new' || (this.#state === 'taken' && this.#limit - this.#sent >= ROOM_BYTES);
  }

  take(bytes: Uint8Array): void {
    this.#inBand?.pass(bytes);
    if (this.#state === 'new') {
      this.#state = 'offered';
      return this.#on.first(bytes);
    }
    this.#on.data(this.#sent, bytes);
    this.#sent += bytes.length;
  }

  end(): void {
    if (this.#state !== 'new') return this.#finish('whole');
    this.#state = 'over';
    this.#on.none(undefined);
  }

  fail(reason: string): void {
    const code = reason as AttemptFailure;
    const state = this.#state;
    if (state === 'new') {
      this.#state = 'over';
      this.#on.none(code);
    } else if (state === 'taken') this.#break(code);
    else if (state === 'offered') this.#broken = code;
  }

  /** Sends the client an error inside the response, without the terminal event. */
  #break(code: AttemptFailure): void {
    const error = apiErrorFor(new AttemptError(code, 'the response broke off'));
    const last = this.#inBand?.error(error);
    if (last !== undefined) this.take(last);
    this.#finish(code);
  }

  #finish(how: OffloadEnding): void {
    this.#state = 'over';
    this.#on.end(this.#sent);
    this.completion?.ended.resolve(how);
  }

  /** Allows up to `limit` bytes in total. The first call means that a client has taken the response. */
  grant(limit: number): void {
    if (this.#state === 'over') return;
    this.#state = 'taken';
    this.#limit = limit;
    if (this.#broken === undefined) this.#attempt.answer.refill();
    else this.#break(this.#broken);
  }

  leave(): void {
    if (this.#state === 'over') return;
    this.#state = 'over';
    this.#on.left();
    this.completion?.ended.resolve('left');
    this.#attempt.cancel();
  }

  /**
   * Takes the response back, so that it can be read in another way. False if a client has taken it, because part of it
   * may already be sent.
   */
  withdraw(): boolean {
    if (this.#state !== 'offered' || this.#broken !== undefined) return false;
    this.#state = 'over';
    this.#on.withdrawn();
    return true;
  }
}
