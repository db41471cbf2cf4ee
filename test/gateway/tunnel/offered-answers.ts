import { expect } from 'vitest';
import type { Asker } from '../../../gateway/tunnel/ask.ts';
import type { AttemptFailure, AttemptRequest, AttemptResult } from '../../../gateway/tunnel/attempt.ts';
import { Departure } from '../../../gateway/tunnel/departure.ts';
import type { Offer, Outlet } from '../../../gateway/tunnel/outlet.ts';
import { findEndpoint } from '../../../shared/openai/endpoints.ts';
import { UpstreamStream } from '../../../shared/upstream/upstream-stream.ts';
import { type Front, settle } from './front.ts';

const STREAM = 7;
const chat = findEndpoint('POST', '/v1/chat/completions');

let requests = 0;

/** Answers on their way from a node, offered to an outlet. */
export class OfferedAnswers {
  readonly exchanges = new Map<number, UpstreamStream>();
  /** How each ended that is over. */
  readonly overs: (AttemptFailure | undefined)[] = [];
  /** Where the next data belongs. */
  offset = 0;
  readonly #outlet: Outlet;
  readonly #front: Front;

  constructor(outlet: Outlet, front: Front) {
    this.#outlet = outlet;
    this.#front = front;
  }

  /** One whose head is there. */
  offered(stream = STREAM) {
    if (chat === undefined || !('id' in chat)) throw new Error('no such endpoint');
    const request = {
      requestId: `request-${++requests}`,
      attempt: 1,
      endpoint: chat.id,
      streaming: true,
      acceptMs: 1000,
      answerOffset: 0,
    } as AttemptRequest;
    const host = {
      now: () => 0,
      onOver: (_exchange: UpstreamStream, failure: AttemptFailure | undefined) => this.overs.push(failure),
      onFirstByte: () => {},
      renumber: () => 8,
    };
    const exchange = new UpstreamStream(stream, request, null, host);
    this.exchanges.set(stream, exchange);
    let result: AttemptResult | undefined;
    exchange.attend((told) => {
      result = told;
    });
    exchange.onFrame({ type: 'accept', stream, bodyOffset: 0, bodyDone: true });
    exchange.onFrame({ type: 'head', stream, status: 200, engineTenths: 1, headers: [] });
    exchange.onMessageEnd();
    if (result?.kind !== 'head') throw new Error('no head');
    const offers: Offer[] = [];
    this.#outlet.offer({ exchange, result }, (offer) => offers.push(offer));
    /** As the Worker's, when it gives its response to the runtime. */
    const response = () => {
      const asker = { env: {}, ctx: { waitUntil: () => {} }, signal: AbortSignal.any([]), leaving: { on: () => {} } };
      return new Departure(asker as unknown as Asker, 'session', request, 'marker');
    };
    return { exchange, name: `${request.requestId}/1`, offers, response };
  }

  data(text: string, stream = STREAM): void {
    const bytes = new TextEncoder().encode(text);
    this.exchanges.get(stream)?.onFrame({ type: 'data', stream, offset: this.offset, bytes });
    this.offset += bytes.length;
  }

  end(stream = STREAM): void {
    this.exchanges.get(stream)?.onFrame({ type: 'end', stream, offset: this.offset });
  }

  /** The first data came; its number. */
  async announced(offers: Offer[]): Promise<number> {
    this.data('first ');
    const [offer] = offers;
    if (offer?.kind !== 'departs') throw new Error(`not offered: ${offer?.kind}`);
    expect(new TextDecoder().decode(offer.first)).toBe('first ');
    await settle();
    expect(this.#front.frames).toEqual([{ type: 'accept', stream: offer.number, bodyOffset: 0, bodyDone: true }]);
    this.#front.frames.length = 0;
    return offer.number;
  }
}
