/**
 * Messages on a link: four bytes with the length, then a value as V8 serializes it. Both ends have proved the cluster
 * key before the first message, so the bytes come from a process of this installation.
 */
import { deserialize, serialize } from 'node:v8';

const LENGTH_BYTES = 4;
/** Maximum of one message: a call with its arguments, or a result. */
export const LINK_MESSAGE_MAX_BYTES = 64 * 1024 * 1024;

export class LinkFrameError extends Error {
  override readonly name = 'LinkFrame';
}

/** @throws DataCloneError if the value cannot be copied; LinkFrameError if it is too large */
export function encodeLinkFrame(value: unknown): Buffer {
  const body = serialize(value);
  if (body.length > LINK_MESSAGE_MAX_BYTES) throw new LinkFrameError(`a message of ${body.length} bytes is too large`);
  const frame = Buffer.allocUnsafe(LENGTH_BYTES + body.length);
  frame.writeUInt32BE(body.length);
  body.copy(frame, LENGTH_BYTES);
  return frame;
}

/** Finds messages in a stream of bytes. Keeps at most one message that is not complete. */
export class LinkFrameReader {
  #parts: Buffer[] = [];
  #length = 0;

  /** Adds bytes. @throws LinkFrameError if a message is too large, or cannot be read */
  add(bytes: Buffer): void {
    this.#parts.push(bytes);
    this.#length += bytes.length;
  }

  /** Returns the next complete message. Undefined: more bytes are needed. */
  next(): { value: unknown } | undefined {
    if (this.#length < LENGTH_BYTES) return undefined;
    const head = this.#together(LENGTH_BYTES);
    const length = head.readUInt32BE();
    if (length > LINK_MESSAGE_MAX_BYTES) throw new LinkFrameError(`a message of ${length} bytes is announced`);
    if (this.#length < LENGTH_BYTES + length) return undefined;
    const all = this.#together(LENGTH_BYTES + length);
    this.#parts[0] = all.subarray(LENGTH_BYTES + length);
    this.#length -= LENGTH_BYTES + length;
    try {
      return { value: deserialize(all.subarray(LENGTH_BYTES, LENGTH_BYTES + length)) };
    } catch (cause) {
      throw new LinkFrameError('a message cannot be read', { cause });
    }
  }

  /** Bytes after the last message. */
  rest(): Buffer {
    return Buffer.concat(this.#parts);
  }

  /** The first part, which has at least `length` bytes afterwards. Parts are only joined when a message is complete. */
  #together(length: number): Buffer {
    const [first] = this.#parts;
    if (first !== undefined && first.length >= length) return first;
    const all = Buffer.concat(this.#parts);
    this.#parts = [all];
    return all;
  }
}
