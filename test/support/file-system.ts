/** Small file systems for tests, which can be filled, made read-only and removed. They need root. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { atEnd } from './processes.ts';

export interface FileSystem {
  path: string;
  /** Writes until this many bytes are left. */
  fill(leftBytes: number): void;
  /** Frees the space that `fill` took. */
  empty(): void;
}

interface FileSystemOptions {
  sizeMiB: number;
  /** `disk`: ext4 on a loop device, which can be made read-only while files are open. Default `memory`. */
  kind?: 'memory' | 'disk';
}

function run(command: string, ...args: string[]): string | undefined {
  const { status, stderr, error } = spawnSync(command, args, { encoding: 'utf8' });
  return status === 0 ? undefined : `${command} ${args.join(' ')}: ${error?.message ?? stderr.trim()}`;
}

/** A file system, or the reason why it cannot be mounted here. */
export function mountFileSystem({ sizeMiB, kind = 'memory' }: FileSystemOptions): FileSystem | string {
  const base = mkdtempSync(join(tmpdir(), 'otela-fs-'));
  atEnd(() => rmSync(base, { recursive: true, force: true }));
  const path = join(base, 'mounted');
  const image = join(base, 'image');
  const size = `${sizeMiB}M`;
  const failed =
    run('mkdir', path) ??
    (kind === 'memory'
      ? run('mount', '-t', 'tmpfs', '-o', `size=${size}`, 'tmpfs', path)
      : (run('truncate', '-s', size, image) ??
        run('mkfs.ext4', '-q', '-m', '0', image) ??
        run('mount', '-o', 'loop', image, path)));
  if (failed !== undefined) return failed;
  atEnd(() => void run('umount', '-l', path));
  const filler = join(path, 'filler');
  return {
    path,
    fill: (leftBytes) => {
      const script = `free=$(( $(stat -f -c '%a * %S' "$1") )); dd if=/dev/zero of="$2" bs=4096 oflag=append conv=notrunc count=$(( (free - $3) / 4096 )) 2>/dev/null; true`;
      const told = run('bash', '-c', script, 'fill', path, filler, String(leftBytes));
      if (told !== undefined) throw new Error(told);
    },
    empty: () => rmSync(filler, { force: true }),
  };
}

/** Makes an ext4 file system read-only as the kernel does after an error: immediately, even if files are open. */
export function abortFileSystem({ path }: FileSystem): void {
  const told = run('mount', '-o', 'remount,abort', path);
  if (told !== undefined) throw new Error(told);
}
