import type { PullStatus } from '../host/control-protocol.ts';

const CELLS = 24;
const UNITS = ['B', 'kB', 'MB', 'GB', 'TB'];

/** For example `[######……] 25 %  1.2 GB of 4.8 GB  hub:org/name@main`, with the origin of the bytes. */
export function progressBar({ source, bytes, total, state, from_source, from_peers, trouble }: PullStatus): string {
  if (state === 'failed') return `${source}  failed: ${trouble}`;
  if (state === 'listing') return `${source}  listing its files`;
  if (state === 'unpacking') return `${source}  ${bytesText(total)} copied, unpacking`;
  const part = total === 0 ? 1 : Math.min(1, bytes / total);
  const full = Math.floor(part * CELLS);
  const from = `${bytesText(from_source)} from the source, ${bytesText(from_peers)} from other nodes`;
  return `[${'#'.repeat(full)}${'.'.repeat(CELLS - full)}] ${Math.floor(part * 100)} %  ${bytesText(bytes)} of ${bytesText(total)}  ${source}  (${from})`;
}

/** Uses powers of 1,000, as vendors of disks and networks do. */
export function bytesText(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${UNITS[unit]}`;
}
