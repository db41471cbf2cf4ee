/** One answer on its way out by the inlet. */
import { PieceReader } from '../../shared/upstream/piece-reader.ts';
import type { HttpAnswer } from '../http.ts';
import { OUTLET_HEADER } from '../tunnel/attempt.ts';
import { type AnswerHead, BODY_MAX_BYTES, type Reply } from './frames.ts';

const encoder = new TextEncoder();
const NOTHING = new Uint8Array(0);

export class Replying {
  readonly #number: number;
  readonly #put: (reply: Reply) => void;
  #sent = 0;
  #limit = 0;
  #granted: PromiseWithResolvers<void> | undefined;
  #reader: PieceReader | undefined;
  #left = false;

  constructor(number: number, put: (reply: Reply) => void) {
    this.#number = number;
    this.#put = put;
  }

  /** Its client takes so many bytes in all. */
  grant(limit: number): void {
    this.#limit = limit;
    this.#granted?.resolve();
  }

  leave(): void {
    this.#left = true;
    this.#granted?.resolve();
    void this.#reader?.cancel().catch(() => {});
  }

  /** Resolves when nothing more is to be said. */
  send({ status, headers, body, length }: HttpAnswer): Promise<void> | void {
    const { [OUTLET_HEADER]: marker, ...others } = headers;
    const lines = linesOf(others);
    if (lines === undefined) {
      if (body instanceof ReadableStream) void body.cancel().catch(() => {});
      return this.#put({ type: 'broke', number: this.#number });
    }
    const head = { status, lines };
    const whole = typeof body === 'string' ? encoder.encode(body) : (body ?? NOTHING);
    if (marker !== undefined && whole instanceof Uint8Array) return this.#depart(head, marker, whole);
    if (whole instanceof Uint8Array && whole.length <= BODY_MAX_BYTES) {
      return this.#put({ type: 'whole', number: this.#number, ...head, body: whole });
    }
    const known = whole instanceof Uint8Array ? whole.length : length;
    this.#put({ type: 'begins', number: this.#number, ...head, length: known });
    return whole instanceof Uint8Array ? this.#pieces(whole).then(() => this.#end()) : this.#pump(whole);
  }

  /** `marker`: secret, session, number of the stream, length of the first data; what is behind that is for who gets no more. */
  #depart(head: AnswerHead, marker: string, body: Uint8Array): void {
    const [, session = '', stream, length] = marker.split(' ');
    const first = body.subarray(0, Number(length));
    this.#put({ type: 'departs', number: this.#number, ...head, session, stream: Number(stream), first });
  }

  async #pump(body: ReadableStream<Uint8Array>): Promise<void> {
    const reader = new PieceReader(body);
    this.#reader = reader;
    if (this.#left) return void (await reader.cancel().catch(() => {}));
    try {
      for (let next = await reader.read(); next !== undefined; next = await reader.read()) await this.#pieces(next);
      if (!this.#left) this.#end();
    } catch {
      if (!this.#left) this.#put({ type: 'broke', number: this.#number });
    }
  }

  async #pieces(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length && !this.#left; ) {
      const room = Math.min(this.#limit - this.#sent, BODY_MAX_BYTES);
      if (room <= 0) {
        this.#granted = Promise.withResolvers();
        await this.#granted.promise;
        continue;
      }
      const piece = bytes.subarray(at, at + room);
      this.#put({ type: 'data', number: this.#number, offset: this.#sent, bytes: piece });
      this.#sent += piece.length;
      at += piece.length;
    }
  }

  #end(): void {
    if (!this.#left) this.#put({ type: 'end', number: this.#number, offset: this.#sent });
  }
}

/** Undefined where one holds what no header may: each letter goes as one byte, and of a larger one its low byte, which may end a line. */
function linesOf(headers: Record<string, string>): string | undefined {
  let lines = '';
  for (const name in headers) {
    const value = headers[name] ?? '';
    if (/[\r\n\0\u0100-\uffff]/.test(value)) return undefined;
    lines += `${name}: ${value}\r\n`;
  }
  return lines;
}
