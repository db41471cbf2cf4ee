import { randomFillSync } from 'node:crypto';

const pool = new Uint8Array(8 * 1024);
let next = pool.length;

/**
 * A masking key (RFC 6455 §5.3), never 0: `ws` then sends the message's own memory instead of a masked copy, and the link writes
 * its next message there.
 */
export function nonZeroMask(mask: Uint8Array): void {
  do {
    if (next === pool.length) {
      randomFillSync(pool);
      next = 0;
    }
    mask.set(pool.subarray(next, next + 4));
    next += 4;
  } while (mask[0] === 0 && mask[1] === 0 && mask[2] === 0 && mask[3] === 0);
}
