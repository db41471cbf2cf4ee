import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { d1Contract } from './d1-contract.ts';
import { D1_EXPECTED } from './d1-expected.ts';

test('D1 behaves as the gateway relies on', async () => {
  expect(await d1Contract(env.DB)).toEqual(D1_EXPECTED);
});
