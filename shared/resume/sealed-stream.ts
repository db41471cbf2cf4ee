/**
 * A sealed stream. Its frames so far are sent unchanged to the next candidate, which opens them and continues after
 * them. This host cannot read them. If it removed, added or exchanged a frame, the node and the client would detect it;
 * see docs/design/sealed-wire.md.
 */

import type { DispatchTarget } from '../attempts/dispatch.ts';
import type { DispatchContext } from '../attempts/dispatch-context.ts';
import { concat } from '../collections/concat.ts';
import { CONTINUED_MAX_BYTES, CONTINUES_HEADER } from '../seal/hpke-suite.ts';
import { buildFrame, FRAME, FrameSplitter } from '../seal/response-frames.ts';
import { SealError } from '../seal/seal-error.ts';
import type { BuildContinuation, ContinuedStream } from './continued-stream.ts';

const NOTE = buildFrame(FRAME.note);

export class SealedStream<C extends DispatchTarget> implements ContinuedStream<C> {
  readonly ping = NOTE;
  readonly atBoundary = true;
  readonly withheld = undefined;
  readonly #context: DispatchContext;
  /** The body as the client sealed it. */
  readonly #body: Uint8Array;
  #splitter = new FrameSplitter();
  /**
   * A SEGMENT frame that waits for its first chunk. If it were sent without a chunk, it would claim that a node
   * answered.
   */
  #segment: Uint8Array | undefined;
  /** Frames that were sent to the client. */
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
        if (type === FRAME.note) continue; // A NOTE is written by a gateway, not by a node.
        const whole = buildFrame(type, payload);
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
      this.#fault = 'the node sent no frames of a sealed response';
    }
    this.#keep(out);
    return out;
  }

  #keep(frames: readonly Uint8Array[]): void {
    for (const { length } of frames) this.#sentBytes += length;
    if (this.#sentBytes > CONTINUED_MAX_BYTES) this.forbid('its response is too long');
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

  /** Always undefined, because only a node can see whether the whole text has arrived. */
  ending(): undefined {
    return undefined;
  }

  continuation(): BuildContinuation<C> {
    const { parsed, headers } = this.#context;
    const { fill: _, ...known } = parsed;
    const bytes = concat([this.#body, ...this.#sent]);
    // If nothing was sent to the client yet, the request is sent again as it was.
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
