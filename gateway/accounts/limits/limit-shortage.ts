/** How long a shortage of a limit lasts. Pure. */
import type { LimitShortage } from './limit-meter.ts';

/** Milliseconds until a shortage ends if nothing else happens; 0 if this depends only on running requests. */
export function lasts(shortage: LimitShortage): number {
  switch (shortage.kind) {
    case 'answer':
      return Number.POSITIVE_INFINITY;
    case 'month':
      return shortage.running ? 0 : Number.MAX_VALUE;
    case 'gpu-month':
    case 'audio-month':
    case 'images-month':
      return Number.MAX_VALUE;
    case 'requests':
    case 'tokens':
      return shortage.waitMs;
    case 'concurrent':
      return 0;
  }
}

export function maySoonEnd(shortage: LimitShortage): boolean {
  return shortage.kind === 'concurrent' || ('running' in shortage && shortage.running);
}
