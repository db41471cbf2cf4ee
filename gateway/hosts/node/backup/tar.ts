/** Writes and reads tar archives of plain files in POSIX.1-1988 format (ustar), which `tar tf` can read. */
import { createReadStream } from 'node:fs';
import { CommandError } from '../../../command-error.ts';

/** The archive is incomplete, or was not made by `otela-gateway backup`. */
export class ArchiveError extends CommandError {}

const BLOCK_BYTES = 512;
const NAME_BYTES = 100;
const PREFIX_BYTES = 155;
/** Largest number in eleven octal digits. */
const OCTAL_MAX = 8 ** 11;
const AT = {
  name: 0,
  mode: 100,
  uid: 108,
  gid: 116,
  size: 124,
  mtime: 136,
  sum: 148,
  type: 156,
  magic: 257,
  prefix: 345,
};

interface Packed {
  /** Relative path with slashes. */
  path: string;
  bytes: number;
  /** Path of a file to read, or the content itself. */
  content: string | Buffer;
}

/** Yields the bytes of an archive. Every file in it is accessible only to its owner. */
export async function* packTar(files: readonly Packed[], mtimeS: number): AsyncGenerator<Buffer> {
  for (const { path, bytes, content } of files) {
    yield header(path, bytes, mtimeS);
    let written = 0;
    for await (const chunk of typeof content === 'string' ? createReadStream(content) : [content]) {
      written += chunk.length;
      yield chunk;
    }
    if (written !== bytes)
      throw new ArchiveError(`${path} changed from ${bytes} to ${written} bytes while it was archived`);
    yield Buffer.alloc(padding(bytes));
  }
  yield Buffer.alloc(2 * BLOCK_BYTES);
}

function header(path: string, bytes: number, mtimeS: number): Buffer {
  const block = Buffer.alloc(BLOCK_BYTES);
  const { name, prefix } = divided(path);
  block.write(name, AT.name);
  block.write('0000600\0', AT.mode);
  block.write('0000000\0', AT.uid);
  block.write('0000000\0', AT.gid);
  if (bytes < OCTAL_MAX) block.write(`${bytes.toString(8).padStart(11, '0')}\0`, AT.size);
  else {
    // Sizes from 8 GiB use GNU's encoding, which every tar reads: binary, with the first bit set.
    block.writeBigUInt64BE(BigInt(bytes), AT.size + 4);
    block[AT.size] = 0x80;
  }
  block.write(`${mtimeS.toString(8).padStart(11, '0')}\0`, AT.mtime);
  block.write('        ', AT.sum);
  block.write('0', AT.type);
  block.write('ustar\x0000', AT.magic);
  block.write(prefix, AT.prefix);
  block.write(`${sumOf(block).toString(8).padStart(6, '0')}\0 `, AT.sum);
  return block;
}

/** Splits a long path at a slash into two fields. */
function divided(path: string): { name: string; prefix: string } {
  if (Buffer.byteLength(path) <= NAME_BYTES) return { name: path, prefix: '' };
  for (let at = path.indexOf('/'); at > 0; at = path.indexOf('/', at + 1)) {
    const [prefix, name] = [path.slice(0, at), path.slice(at + 1)];
    if (Buffer.byteLength(name) <= NAME_BYTES && Buffer.byteLength(prefix) <= PREFIX_BYTES) return { name, prefix };
  }
  throw new ArchiveError(`the name ${path} is too long for an archive`);
}

/** Computes the checksum of a header. The checksum field itself counts as spaces. */
function sumOf(block: Buffer): number {
  let sum = 0;
  for (const [at, byte] of block.entries()) sum += at >= AT.sum && at < AT.sum + 8 ? 0x20 : byte;
  return sum;
}

const padding = (bytes: number) => (BLOCK_BYTES - (bytes % BLOCK_BYTES)) % BLOCK_BYTES;

export interface TarEntry {
  path: string;
  bytes: number;
  /** The content must be read to its end before the next file is requested. */
  content: AsyncIterable<Buffer>;
}

/** Yields the files of an archive, in order. @throws ArchiveError */
export async function* unpackTar(stream: AsyncIterable<Buffer>): AsyncGenerator<TarEntry> {
  const source = new Source(stream);
  for (;;) {
    const block = await source.exactly(BLOCK_BYTES);
    if (block.every((byte) => byte === 0)) return;
    const { path, bytes } = opened(block);
    yield { path, bytes, content: source.some(bytes) };
    await source.exactly(padding(bytes));
  }
}

function opened(block: Buffer): { path: string; bytes: number } {
  const field = (at: number, length: number) => block.toString('utf8', at, at + length).split('\0')[0] ?? '';
  if (Number.parseInt(field(AT.sum, 8), 8) !== sumOf(block))
    throw new ArchiveError('this is not an archive, or it is damaged');
  const [name, prefix] = [field(AT.name, NAME_BYTES), field(AT.prefix, PREFIX_BYTES)];
  const path = prefix === '' ? name : `${prefix}/${name}`;
  if (!['0', '\0'].includes(String.fromCharCode(block[AT.type] ?? 0)))
    throw new ArchiveError(`${path} is not a plain file: otela-gateway did not create this archive`);
  const binary = (block[AT.size] ?? 0) >= 0x80;
  const bytes = binary ? Number(block.readBigUInt64BE(AT.size + 4)) : Number.parseInt(field(AT.size, 12), 8);
  if (!Number.isSafeInteger(bytes) || bytes < 0) throw new ArchiveError(`${path} has no size`);
  return { path, bytes };
}

/** Returns requested lengths from a stream of chunks. */
class Source {
  readonly #chunks: AsyncIterator<Buffer>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(stream: AsyncIterable<Buffer>) {
    this.#chunks = stream[Symbol.asyncIterator]();
  }

  async exactly(bytes: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for await (const piece of this.some(bytes)) pieces.push(piece);
    return Buffer.concat(pieces);
  }

  async *some(bytes: number): AsyncGenerator<Buffer> {
    for (let left = bytes; left > 0; ) {
      if (this.#rest.length === 0) {
        const { value, done } = await this.#chunks.next();
        if (done === true) throw new ArchiveError('the archive is cut off');
        this.#rest = value;
      }
      const piece = this.#rest.subarray(0, left);
      this.#rest = this.#rest.subarray(piece.length);
      left -= piece.length;
      yield piece;
    }
  }
}
