/** Reads a multipart form with one file as a stream. Clients may send the file before or after the fields. */
import { decodeField, type MultipartError, make } from 'multipasta';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { type BodyContext, readBodyPieces } from '../http/read-body.ts';

/** Maximum parts of a form; OpenAI's has five. */
const PARTS_MAX = 16;
const FIELD_MAX_BYTES = 4_096;

interface UploadedForm<T> {
  fields: ReadonlyMap<string, string>;
  filename: string;
  stored: T;
}

/**
 * Passes the part named `part` to `store` as a stream, and resolves to its result when the form is complete. The body
 * is read as fast as `store` accepts it, so only one piece of it is in memory.
 * @throws ApiError 400 invalid_multipart; 408 if the body stalls; errors of `store`
 */
export async function readMultipartForm<T>(
  c: BodyContext,
  store: (content: AsyncIterable<Uint8Array>) => Promise<T>,
  part = 'file',
): Promise<UploadedForm<T>> {
  const type = c.req.raw.headers.get('content-type') ?? '';
  if (!/^multipart\/form-data\b/i.test(type))
    throw new ApiError('invalid_multipart', 'Send multipart/form-data with a file.');
  const form = new Form(type, readBodyPieces(c), part);
  try {
    while (form.filename === undefined && (await form.read()));
    if (form.filename === undefined)
      throw new ApiError('invalid_request', `Missing required parameter: '${part}'.`, { param: part });
    const stored = await store(form.file());
    while (await form.read());
    return { fields: form.fields, filename: form.filename, stored };
  } finally {
    await form.close();
  }
}

/** The parser with the fields that it has read. */
class Form {
  readonly fields = new Map<string, string>();
  filename: string | undefined;
  readonly #body: AsyncGenerator<Uint8Array, undefined>;
  readonly #parser: ReturnType<typeof make>;
  /** Pieces of the file in the piece of the body that was read last. */
  #pieces: Uint8Array[] = [];
  #fileEnded = false;
  #done = false;
  #failure: ApiError | undefined;

  constructor(type: string, body: AsyncGenerator<Uint8Array, undefined>, part: string) {
    this.#body = body;
    this.#parser = make({
      headers: { 'content-type': type },
      isFile: ({ name }) => name === part,
      maxParts: PARTS_MAX,
      maxFieldSize: FIELD_MAX_BYTES,
      onField: (info, value) => void this.fields.set(info.name, decodeField(info, value)),
      onFile: (info) => {
        if (this.filename !== undefined) this.#fail('The form has two files.');
        this.filename ??= info.filename ?? 'file';
        return (piece) => {
          if (piece === null) this.#fileEnded = true;
          else this.#pieces.push(piece);
        };
      },
      onError: (error) => this.#fail(messageOf(error)),
      onDone: () => {},
    });
  }

  /**
   * Reads one piece of the body.
   * @returns false at the end of the body
   * @throws ApiError
   */
  async read(): Promise<boolean> {
    if (this.#done) return false;
    const { done, value } = await this.#body.next();
    this.#done = done === true;
    if (done === true) this.#parser.end();
    else this.#parser.write(value);
    if (this.#failure !== undefined) throw this.#failure;
    return !this.#done;
  }

  async *file(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const pieces = this.#pieces;
      this.#pieces = [];
      yield* pieces;
      if (this.#fileEnded) return;
      if (!(await this.read())) throw new ApiError('invalid_multipart', 'The body ended in the middle of the file.');
    }
  }

  async close(): Promise<void> {
    await this.#body.return(undefined);
  }

  #fail(message: string): void {
    this.#failure ??= new ApiError('invalid_multipart', message);
  }
}

function messageOf(error: MultipartError): string {
  switch (error._tag) {
    case 'InvalidBoundary':
      return 'The content-type has no boundary.';
    case 'ReachedLimit':
      return `The form has too many parts, or a field above ${FIELD_MAX_BYTES} bytes.`;
    default:
      return 'The body is not complete multipart/form-data.';
  }
}
