/** Tar archives, entry by entry: valid ones, and invalid ones that no packer makes. */
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { Header } from 'tar';

const BLOCK = 512;

export interface Entry {
  path: string;
  type?: 'File' | 'Directory' | 'SymbolicLink' | 'Link' | 'CharacterDevice' | 'FIFO';
  content?: string | Buffer;
  linkpath?: string;
  mode?: number;
}

export function tarOf(...entries: Entry[]): Buffer {
  return Buffer.concat([...entries.flatMap(blocksOf), Buffer.alloc(2 * BLOCK)]);
}

function blocksOf({ path, type = 'File', content = '', linkpath, mode = 0o644 }: Entry): Buffer[] {
  const body = Buffer.from(content);
  const header = new Header({ path, type, size: body.length, mode, ...(linkpath === undefined ? {} : { linkpath }) });
  header.encode();
  if (header.block === undefined) throw new Error('no header');
  const padding = Buffer.alloc((BLOCK - (body.length % BLOCK)) % BLOCK);
  return [header.block, body, padding];
}

/** An entry with only this type in its header: a type that the parser does not know, or that it knows and skips. */
export function withType(flag: string, entry: Entry): Buffer {
  const tar = tarOf(entry);
  tar.write(flag, 156);
  tar.fill(' ', 148, 156);
  const sum = tar.subarray(0, BLOCK).reduce((all, byte) => all + byte, 0);
  tar.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return withoutEnd(tar);
}

/** An archive without its end, so that entries can follow. */
export function withoutEnd(tar: Buffer): Buffer {
  return tar.subarray(0, tar.length - 2 * BLOCK);
}

/** The files that an environment must have. */
export const BIN: Entry[] = [
  { path: 'bin/', type: 'Directory', mode: 0o755 },
  { path: 'bin/python3', content: 'no program', mode: 0o755 },
];

export const PACKED = {
  '.tar': (tar: Buffer) => tar,
  '.tar.gz': (tar: Buffer) => gzipSync(tar),
  '.tar.zst': (tar: Buffer) => zstdCompressSync(tar),
} as const;
