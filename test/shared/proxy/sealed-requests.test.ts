import { expect, it } from 'vitest';
import { readSealed } from '../../../shared/proxy/sealed-requests.ts';

const NOW = 1_700_000_000;
const header = (more: Record<string, string>) => (name: string) =>
  ({
    'content-type': 'application/otela-sealed',
    'x-otela-seal': `v=1; n=${'A'.repeat(22)}; at=${NOW}; until=${NOW + 600}`,
    'x-otela-seal-to': 'A'.repeat(160),
    ...more,
  })[name] ?? null;

it('a sealed body that no node holds is refused before it is read, and not as one to be sent again', () => {
  expect(readSealed(header({ 'content-length': String(36 * 1024 * 1024) }), 'm', NOW)?.envelopes.size).toBe(1);
  expect(() => readSealed(header({ 'content-length': String(36 * 1024 * 1024 + 1) }), 'm', NOW)).toThrow(
    expect.objectContaining({ code: 'request_too_large', status: 413 }),
  );
});
