/** Small insertions and replacements in a streaming body, computed from a scan and applied without a copy. */
import { encodeUtf8, sameBytes } from './byte-search.ts';
import type { Endpoint } from './endpoints.ts';
import type { JsonScan } from './scan-json-body.ts';

/**
 * `insert` replaces `remove` bytes at byte `at` of the original body. Lists of edits are sorted by `at`, and the edits
 * do not overlap.
 */
export interface Edit {
  at: number;
  remove: number;
  insert: Uint8Array;
}

/** Maximum number of edits. Our gateways send at most three. */
const MAX_EDITS = 16;

const MEMBER = '"include_usage":true';
const TRUE = encodeUtf8('true');
const FALSE = encodeUtf8('false');
const FIRST_MEMBER = encodeUtf8(MEMBER);
const NEXT_MEMBER = encodeUtf8(`${MEMBER},`);
const OPTIONS = encodeUtf8(`{${MEMBER}}`);
const FIRST_KEY = encodeUtf8(`"stream_options":{${MEMBER}}`);
const NEXT_KEY = encodeUtf8(`,"stream_options":{${MEMBER}}`);

/**
 * Makes the engine report usage in the stream. Returns no edits if the client asked for usage itself. If there are
 * edits, the usage event that they cause must be removed from the response (`usage-meter.ts`). A `stream_options` of a
 * wrong type is not edited, because the engine's 4xx explains the error better.
 */
export function usageEdits(scan: JsonScan, endpoint: Pick<Endpoint, 'injectUsage'>): Edit[] {
  if (!endpoint.injectUsage || !scan.stream) return [];
  const options = scan.streamOptions;
  if (options === undefined) return [{ at: scan.topEnd, remove: 0, insert: scan.empty ? FIRST_KEY : NEXT_KEY }];
  switch (options.kind) {
    case 'other':
      return [];
    case 'null':
      return [{ at: options.start, remove: options.end - options.start, insert: OPTIONS }];
    case 'object': {
      const { includeUsage: asked, continuousUsage: everywhere } = options;
      if (asked?.value === 'true' || asked?.value === 'other') return [];
      const edits =
        asked === undefined
          ? [{ at: options.start + 1, remove: 0, insert: options.empty ? FIRST_MEMBER : NEXT_MEMBER }]
          : [{ at: asked.start, remove: asked.end - asked.start, insert: TRUE }];
      // Without `include_usage`, the client's `continuous_usage_stats` has no effect. With the inserted
      // `include_usage`, every chunk would contain counts, and nothing would remove them. So it is set to false.
      if (everywhere?.value === 'true' || everywhere?.value === 'other')
        edits.push({ at: everywhere.start, remove: everywhere.end - everywhere.start, insert: FALSE });
      return edits.sort((one, other) => one.at - other.at);
    }
  }
}

/** Removes the edits that insert `stream_options`, for an engine that refuses them. */
export function withoutUsage(edits: readonly Edit[]): Edit[] {
  const ours = [FIRST_KEY, NEXT_KEY, OPTIONS];
  return edits.filter(({ insert }) => !ours.some((one) => sameBytes(one, insert)));
}

/** Replaces the model's name between `start` and `end`, including its quotes. */
export function modelNameEdit({ start, end }: { start: number; end: number }, model: string): Edit {
  return { at: start, remove: end - start, insert: encodeUtf8(JSON.stringify(model)) };
}

/** Joins lists into one sorted list. @throws RangeError if two edits overlap */
export function joinEdits(...lists: readonly Edit[][]): Edit[] {
  const edits = lists.flat().sort((a, b) => a.at - b.at);
  checkEdits(edits);
  return edits;
}

/** Checks edits, because a peer's edits are not trusted. @throws RangeError if a list is not valid */
function checkEdits(edits: readonly Edit[]): void {
  if (edits.length > MAX_EDITS) throw new RangeError(`more than ${MAX_EDITS} edits`);
  let free = 0;
  for (const { at, remove } of edits) {
    if (!Number.isSafeInteger(at) || !Number.isSafeInteger(remove) || remove < 0 || at < free) {
      throw new RangeError(`edit at ${at} removing ${remove} is out of order, overlaps another one or is not a range`);
    }
    free = at + remove;
  }
}

/** Applies edits to one body in one pass. */
export class EditedBody {
  readonly #edits: readonly Edit[];
  #next = 0;
  /** Offset of the next byte in the original body. */
  #pos = 0;
  /** Number of bytes that are still to be removed. */
  #removing = 0;

  /** @throws RangeError if the edits are not sorted, overlap or are too many */
  constructor(edits: readonly Edit[]) {
    checkEdits(edits);
    this.#edits = edits;
  }

  /** Returns the edited chunk: views of it, and inserted bytes. */
  push(chunk: Uint8Array): Uint8Array[] {
    const out: Uint8Array[] = [];
    const base = this.#pos;
    const end = base + chunk.length;
    let from = base;
    for (;;) {
      const removed = Math.min(this.#removing, end - from);
      this.#removing -= removed;
      from += removed;
      const edit = this.#edits[this.#next];
      // An edit at the end of a chunk waits for the next byte or the end of the body, so that the output is in order.
      if (edit === undefined || edit.at >= end) break;
      if (edit.at > from) out.push(chunk.subarray(from - base, edit.at - base));
      if (edit.insert.length > 0) out.push(edit.insert);
      from = edit.at;
      this.#removing = edit.remove;
      this.#next++;
    }
    if (from < end) out.push(from === base ? chunk : chunk.subarray(from - base));
    this.#pos = end;
    return out;
  }

  /** Returns the bytes that are inserted after the last byte. @throws RangeError if an edit reaches beyond the body */
  end(): Uint8Array[] {
    const rest = this.#edits.slice(this.#next);
    this.#next = this.#edits.length;
    if (this.#removing > 0 || rest.some((edit) => edit.at + edit.remove > this.#pos)) {
      throw new RangeError(`an edit reaches beyond the body's ${this.#pos} bytes`);
    }
    return rest.map((edit) => edit.insert).filter((insert) => insert.length > 0);
  }

  /** The content-length of the edited body. @throws RangeError if an edit reaches beyond `total` bytes */
  lengthAfter(total: number): number {
    let length = total;
    for (const edit of this.#edits) {
      if (edit.at + edit.remove > total) throw new RangeError(`an edit reaches beyond the body's ${total} bytes`);
      length += edit.insert.length - edit.remove;
    }
    return length;
  }
}
