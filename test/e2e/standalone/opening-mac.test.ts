/** The MAC of an opening beside node:crypto's own HMAC. */
import { createHash, createHmac } from 'node:crypto';
import { expect, test } from 'vitest';
import { proveOpening } from '../../../gateway/accounts/opening.ts';

test.each(['', 'receipt', 'ünïcode ✓', 'x'.repeat(2_000)])(
  'of the receipt %j it is HMAC-SHA-256 cut to 128 bits',
  (receipt) => {
    const bound = { prompt: 5, completion: 6 };
    const opening = { session: 's', requestId: 'r', attempt: 2, receipt, endpoint: 1, streamed: true, bound };
    const proof = proveOpening('a secret', opening, 1_000);
    const end = proof.lastIndexOf('.');
    const key = createHash('sha256').update('otela-opening-1\na secret').digest('hex');
    const text = JSON.stringify([proof.slice(0, end), 's', 'r', 2, receipt]);
    const mac = createHmac('sha256', key).update(text).digest().subarray(0, 16).toString('base64url');
    expect(proof.slice(end + 1)).toBe(mac);
  },
);
