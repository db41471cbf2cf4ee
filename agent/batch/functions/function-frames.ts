/** Frames of a function's process. A frame is one line of JSON of bounded length. */
import * as z from 'zod';
import { LINE_FILES_MAX } from '../../../shared/batch/function-files.ts';
import { decodeUtf8 } from '../../../shared/openai/byte-search.ts';
import { JsonReader } from '../../../shared/openai/json-reader.ts';
import { tryParseJson } from '../../../shared/text/parse-json.ts';

/**
 * Maximum length of the answer to one call. The lines of a call have at most 4 MiB together, and each stored result has
 * at most 1 MiB.
 */
const FUNCTION_FRAME_MAX_BYTES = 8 * 1024 * 1024;

/** A file that a call wrote: its name in the process's directory of outputs, and the name for its owner. */
const fileSchema = z.object({ path: z.string().regex(/^[0-9a-f]{1,32}$/), name: z.string().max(1_024) });

const frameSchema = z.union([
  z.object({ v: z.literal(1), loaded: z.boolean(), error: z.string().optional() }),
  /** `failed`: messages of lines that raised an exception, by their index. Their outputs are null. `files`: by index too. */
  z.object({
    id: z.int(),
    outputs: z.array(z.unknown()),
    failed: z.record(z.string().max(8), z.string()).default({}),
    files: z.record(z.string().max(8), z.array(fileSchema).max(LINE_FILES_MAX)).default({}),
  }),
  z.object({ id: z.int(), error: z.string() }),
]);
type Parsed = z.output<typeof frameSchema>;
type Outputs = Extract<Parsed, { outputs: unknown[] }>;
/** `outputs`: JSON texts with the digits that the function wrote. */
export type FunctionFrame = Exclude<Parsed, Outputs> | (Omit<Outputs, 'outputs'> & { outputs: string[] });

/** Splits the output into frames. */
export class FunctionFrameReader {
  readonly #onFrame: (frame: FunctionFrame) => void;
  readonly #onGarbage: (why: string) => void;
  #pieces: Buffer[] = [];
  #bytes = 0;
  #finished = false;

  /** @param onGarbage called at most once, when the output is not a valid frame; nothing is read after that */
  constructor(onFrame: (frame: FunctionFrame) => void, onGarbage: (why: string) => void) {
    this.#onFrame = onFrame;
    this.#onGarbage = onGarbage;
  }

  push(chunk: Buffer): void {
    let rest = chunk;
    for (let end = rest.indexOf(10); end >= 0 && !this.#finished; end = rest.indexOf(10)) {
      this.#add(rest.subarray(0, end));
      rest = rest.subarray(end + 1);
      this.#frame();
    }
    if (!this.#finished) this.#add(rest);
  }

  #add(piece: Buffer): void {
    this.#bytes += piece.length;
    if (this.#bytes > FUNCTION_FRAME_MAX_BYTES)
      return this.#invalid(`a response of more than ${FUNCTION_FRAME_MAX_BYTES} bytes`);
    if (piece.length > 0) this.#pieces.push(Buffer.from(piece));
  }

  #frame(): void {
    if (this.#finished) return;
    const line = Buffer.concat(this.#pieces);
    this.#pieces = [];
    this.#bytes = 0;
    const { data } = frameSchema.safeParse(tryParseJson(line.toString('utf8')));
    if (data === undefined) this.#invalid('a response that is not a frame');
    else this.#onFrame('outputs' in data ? { ...data, outputs: outputsOf(line) } : data);
  }

  #invalid(why: string): void {
    this.#finished = true;
    this.#pieces = [];
    this.#onGarbage(why);
  }
}

/** The outputs of a frame whose JSON was already checked. */
function outputsOf(frame: Uint8Array): string[] {
  const reader = new JsonReader(frame);
  let outputs: string[] = [];
  reader.object((key) => {
    if (reader.text(key) !== 'outputs') return reader.value(1);
    outputs = [];
    reader.array(() => {
      const start = reader.pos;
      reader.value(2);
      outputs.push(decodeUtf8(frame.subarray(start, reader.pos)));
    });
  });
  return outputs;
}
