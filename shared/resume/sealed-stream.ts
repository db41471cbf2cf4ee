/**
 * A stream that is sealed: its frames so far go to the next candidate as they are, which opens them and goes on behind them. Nothing of them
 * is read here, and nothing that is left out, added or exchanged here is taken by that node or by the client: docs/sealed-wire.md.
 */
import { concat } from '../collections/concat.ts';
import { SealError } from '../seal/error.ts';
import { FRAME, FrameSplitter, frame } from '../seal/response-frames.ts';
import { CONTINUED_MAX_BYTES, CONTINUES_HEADER } from '../seal/suite.ts';
import type { Choice } from '../upstream/dispatch.ts';
import type { DispatchContext } from '../upstream/dispatch-context.ts';
import type { Continuation, ContinuedStream } from './continued-stream.ts';

const NOTE = frame(FRAME.note);

export class SealedStream<C extends Choice> implements ContinuedStream<C> {
  readonly ping = NOTE;
  readonly atBoundary = true;
  readonly withheld = undefined;
  readonly #context: DispatchContext;
  /** As the client sealed it. */
  readonly #body: Uint8Array;
  #splitter = new FrameSplitter();
  /** A SEGMENT goes out with its first chunk: one without any would say of a node that it answered. */
  #segment: Uint8Array | undefined;
  /** Frames that went out. */
  #sent: Uint8Array[] = [];
  #sentBytes = 0;
  #done = false;
  #fault: string | undefined;
  #obstacle: string | undefined;

  constructor(context: DispatchContext, body: Uint8Array) {
    this.#context = context;
    this.#body = body;
  }

  push(piece: Uint8Array): Uint8Array[] {
    if (this.#fault !== undefined || this.#done) return [];
    const out: Uint8Array[] = [];
    try {
      for (const { type, payload } of this.#splitter.push(piece)) {
        if (type === FRAME.note) continue; // a gateway's word, and no node's
        const whole = frame(type, payload);
        if (type === FRAME.segment) {
          this.#segment = whole;
          continue;
        }
        if (this.#segment !== undefined) out.push(this.#segment);
        this.#segment = undefined;
        out.push(whole);
        this.#done = type === FRAME.final;
      }
    } catch (error) {
      if (!(error instanceof SealError)) throw error;
      this.#fault = 'the node sent no frames of a sealed answer';
    }
    this.#keep(out);
    return out;
  }

  #keep(frames: readonly Uint8Array[]): void {
    for (const { length } of frames) this.#sentBytes += length;
    if (this.#sentBytes > CONTINUED_MAX_BYTES) this.forbid('its answer is too long');
    if (this.#obstacle === undefined) this.#sent.push(...frames);
  }

  get done(): boolean {
    return this.#done;
  }

  get fault(): string | undefined {
    return this.#fault;
  }

  get obstacle(): string | undefined {
    return this.#obstacle;
  }

  get keptBytes(): number {
    return this.#body.length + (this.#obstacle === undefined ? this.#sentBytes : 0);
  }

  forbid(why: string): void {
    this.#obstacle ??= why;
    this.#sent = [];
  }

  /** Whether all of the text is there only a node can see. */
  ending(): undefined {
    return undefined;
  }

  continuation(): Continuation<C> {
    const { parsed, headers } = this.#context;
    const { fill: _, ...known } = parsed;
    const bytes = concat([this.#body, ...this.#sent]);
    // Nothing went out yet: the request as it was.
    const continues: [string, string][] =
      this.#sent.length === 0 ? [] : [[CONTINUES_HEADER, String(this.#body.length)]];
    const body = { kind: 'kept', bytes } as const;
    const context = { ...this.#context, headers: [...headers, ...continues], parsed: { ...known, body, release() {} } };
    return async () => context;
  }

  continueAt(): Uint8Array[] {
    this.#splitter = new FrameSplitter();
    this.#segment = undefined;
    this.#fault = undefined;
    return [];
  }
}
