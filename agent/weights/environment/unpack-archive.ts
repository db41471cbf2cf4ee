/** Detects the format of a packed environment, and unpacks tar archives into a directory. */
import { createReadStream } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import * as zlib from 'node:zlib';
import { TarError, TarReader } from '../../../node/tar-reader.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import { asWeightsError, WeightsError } from '../weights-error.ts';
import { TreeWriter, type WrittenTree } from './tree-writer.ts';

/** `image`: one file that a container runtime opens itself (SIF, SquashFS). */
type PackedFormat = 'tar' | 'tar.gz' | 'tar.zst' | 'image';

const HEAD_BYTES = 512;
const READ_BYTES = 1024 * 1024;
/** Disk quota is requested in steps of this size, because one request for each write would cost more than the write. */
const ROOM_STEP_BYTES = 64 * 1024 * 1024;

const MAGIC: readonly { format: PackedFormat; offset: number; bytes: Buffer }[] = [
  { format: 'tar.gz', offset: 0, bytes: Buffer.from([0x1f, 0x8b]) },
  { format: 'tar.zst', offset: 0, bytes: Buffer.from([0x28, 0xb5, 0x2f, 0xfd]) },
  // Magic bytes of the Singularity Image Format, after 32 bytes of `#!/usr/bin/env run-singularity`.
  { format: 'image', offset: 32, bytes: Buffer.from('SIF_MAGIC') },
  { format: 'image', offset: 0, bytes: Buffer.from('hsqs') },
  { format: 'tar', offset: 257, bytes: Buffer.from('ustar') },
];
/** Formats that are refused: their decompression takes longer than the transfer, and Node does not support them. */
const REFUSED: readonly { name: string; bytes: Buffer }[] = [
  { name: 'xz', bytes: Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a]) },
  { name: 'bzip2', bytes: Buffer.from('BZh') },
  { name: 'zip', bytes: Buffer.from('PK') },
];

/** Detects the format by the first bytes, because names are unreliable. @throws WeightsError `wrong` */
export async function packedFormat(path: string): Promise<PackedFormat> {
  const head = Buffer.alloc(HEAD_BYTES);
  let file: FileHandle | undefined;
  try {
    file = await open(path, 'r');
    await file.read(head, 0, HEAD_BYTES, 0);
  } catch (error) {
    throw asWeightsError(error);
  } finally {
    await file?.close();
  }
  const found = MAGIC.find(({ offset, bytes }) => head.subarray(offset, offset + bytes.length).equals(bytes));
  if (found !== undefined) return found.format;
  const refused = REFUSED.find(({ bytes }) => head.subarray(0, bytes.length).equals(bytes));
  if (refused !== undefined)
    throw new WeightsError(
      'wrong',
      `the environment is compressed with ${refused.name}: pack it as .tar.zst or .tar.gz`,
    );
  throw new WeightsError('wrong', 'the environment is not a .tar, .tar.gz, .tar.zst, .sif or .sqsh file');
}

interface UnpackOptions {
  path: string;
  format: Exclude<PackedFormat, 'image'>;
  /** An existing, empty directory. */
  directory: string;
  /**
   * Called before more bytes are written. Reserves disk quota for `bytes` in total.
   * @throws WeightsError `full`
   */
  room(bytes: number): Promise<void>;
  signal: AbortSignal;
}

/** @throws WeightsError `wrong` if the archive is damaged or an entry is refused; `full`; `stopped` */
export async function unpackEnvironment({
  path,
  format,
  directory,
  room: quota,
  signal,
}: UnpackOptions): Promise<WrittenTree> {
  const tree = new TreeWriter(directory);
  const reading = new TarReader((entry, body) => tree.add(entry, body));
  let bytes = 0;
  let reserved = 0;
  try {
    for await (const chunk of decompressed(path, format, signal)) {
      bytes += chunk.length;
      // Count bytes before they are written, including padding: a decompression bomb must not fill the disk.
      if (bytes > reserved) {
        reserved = bytes + ROOM_STEP_BYTES;
        await quota(reserved);
      }
      await reading.push(chunk);
    }
    await reading.end();
    return await tree.finish();
  } catch (error) {
    if (signal.aborted) throw new WeightsError('stopped', 'the environment is no longer needed', { cause: error });
    throw asArchiveError(error);
  } finally {
    await reading.close();
    await tree.settled();
  }
}

async function* decompressed(path: string, format: UnpackOptions['format'], signal: AbortSignal) {
  const file = createReadStream(path, { highWaterMark: READ_BYTES, signal });
  const unzip = decompressor(format);
  if (unzip === undefined) return yield* chunksOf(file);
  file.on('error', (error) => unzip.destroy(error));
  try {
    yield* chunksOf(file.pipe(unzip));
  } finally {
    file.destroy();
  }
}

function decompressor(format: UnpackOptions['format']) {
  switch (format) {
    case 'tar':
      return undefined;
    case 'tar.gz':
      return zlib.createGunzip();
    case 'tar.zst':
      return zlib.createZstdDecompress();
  }
}

async function* chunksOf(stream: Readable): AsyncGenerator<Buffer> {
  for await (const chunk of stream) yield Buffer.from(chunk);
}

/** Converts errors. The parser and zlib report invalid bytes, the file system disk errors. */
function asArchiveError(error: unknown): WeightsError {
  if (error instanceof WeightsError) return error;
  if (error instanceof TarError) return new WeightsError('wrong', error.message, { cause: error });
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  if (!/^(Z_|ERR_ZSTD|ZSTD_|ERR_.*ZLIB)/.test(code)) return asWeightsError(error);
  return new WeightsError('wrong', `the environment's archive is damaged: ${errorText(error)}`, { cause: error });
}
