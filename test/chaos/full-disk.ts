/** The file system of the gateway's data fills up, stays full for some seconds, and has space again. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type FileSystem, mountFileSystem } from '../support/file-system.ts';
import type { Fault } from './faults.ts';

/** A long run leaves about 60 MiB of records and logs. */
const SIZE_MIB = 192;

/**
 * The gateway stops writing below 8 MiB, which it checks four times a second. The disk is first filled to this level
 * for this long, so that the gateway notices.
 */
const NEARLY_FULL_BYTES = 4 * 1024 * 1024;
const NOTICED_MS = 750;

const LEAST_MS = 1_500;
const MOST_MS = 5_000;

/** A file system for the gateway's data, or the reason that there is none. */
export function gatewayDisk(): FileSystem | string {
  return mountFileSystem({ sizeMiB: SIZE_MIB });
}

/** It affects all nodes, not only the drawn one. If it is drawn again while the disk is full, it waits for the end. */
export function fullDisk(disk: FileSystem): Fault {
  let full: Promise<void> | undefined;
  const fill = async (ms: number) => {
    disk.fill(NEARLY_FULL_BYTES);
    await sleep(NOTICED_MS);
    disk.fill(0);
    await sleep(ms);
    disk.empty();
  };
  return {
    name: 'disk full',
    weight: 2,
    outOfReach: false,
    suits: () => true,
    strike: (_replica, random) => {
      full ??= fill(LEAST_MS + random() * (MOST_MS - LEAST_MS)).finally(() => {
        full = undefined;
      });
      return full;
    },
  };
}
