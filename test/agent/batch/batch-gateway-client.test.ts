/** How a session asks a gateway with a different clock for work of batches. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { BatchGatewayClient } from '../../../agent/batch/batch-gateway-client.ts';
import { createSessionKey } from '../../../agent/mesh/channel/session-key.ts';
import { BATCH_SIGNATURE_HEADER, CLOCK_HEADER, readBatchSignature } from '../../../shared/batch/batch-signature.ts';
import { labTicket } from '../support/fake-admission.ts';

const HOUR_MS = 3_600_000;

/** A gateway that grants this lease, and has these lines. */
async function granting(lease: object, lines: string) {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    request.resume();
    const verb = request.url?.split('/').at(-1) ?? '';
    asked.push(verb);
    response.end(verb === 'lease' ? JSON.stringify(lease) : lines);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const key = createSessionKey();
  const gateway = new BatchGatewayClient(url, () => ({ ticket: labTicket(key.publicKey), key }), undefined);
  onTestFinished(async () => {
    await gateway.close();
    server.close();
  });
  return { gateway, asked };
}

const LINES = '{"n":1}\n{"n":"é"}';
const LEASE = { batch: 'b', endpoint: 'e', chunk: 0, epoch: 1, open: [0, 1], bytes: 18, prefix: 0, leaseMs: 60_000 };

it.each([
  ['that came with the lease are not asked for', { lines: LINES }, ['lease']],
  ['that did not come, as from a gateway of an earlier version, are asked for', {}, ['lease', 'chunk']],
  ['of another length than the lease says are asked for', { lines: '{"n":1}' }, ['lease', 'chunk']],
])('lines %s', async (_, more, requests) => {
  const { gateway, asked } = await granting({ ...LEASE, ...more }, LINES);
  const { signal } = new AbortController();
  const lease = await gateway.lease(['m'], undefined, 0, signal);
  if (lease === undefined) return expect.unreachable();
  expect(Buffer.from(await gateway.chunk(lease, signal)).toString()).toBe(LINES);
  expect(asked).toEqual(requests);
});

async function gatewayAt(clock: () => number) {
  const asked: { offMs: number; nonce: string }[] = [];
  const server = createServer((request, response) => {
    request.resume();
    const signed = readBatchSignature(String(request.headers[BATCH_SIGNATURE_HEADER]));
    if (signed === undefined || signed === 'former') throw new Error('not signed');
    asked.push({ offMs: signed.at - clock(), nonce: signed.nonce });
    const stale = Math.abs(signed.at - clock()) > 60_000;
    if (stale) response.setHeader(CLOCK_HEADER, String(clock()));
    response.statusCode = stale ? 403 : 204;
    response.end(stale ? 'stale' : undefined);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const key = createSessionKey();
  const gateway = new BatchGatewayClient(url, () => ({ ticket: labTicket(key.publicKey), key }), undefined);
  onTestFinished(async () => {
    await gateway.close();
    server.close();
  });
  return { gateway, asked };
}

it.each([-HOUR_MS, HOUR_MS])('a gateway %d ms off is asked by its own clock, after one refusal', async (off) => {
  const { gateway, asked } = await gatewayAt(() => Date.now() + off);
  const lease = () => gateway.lease(['m'], undefined, 0, new AbortController().signal);
  expect(await lease()).toBeUndefined();
  expect(asked).toHaveLength(2);
  expect(await lease()).toBeUndefined();
  expect(asked).toHaveLength(3);
  expect(Math.abs(asked[2]?.offMs ?? HOUR_MS)).toBeLessThan(60_000);
  expect(new Set(asked.map(({ nonce }) => nonce)).size).toBe(3);
});

it('a gateway that refuses the time again is not asked a third time', async () => {
  let hours = 0;
  const { gateway, asked } = await gatewayAt(() => Date.now() + ++hours * HOUR_MS);
  await expect(gateway.lease(['m'], undefined, 0, new AbortController().signal)).rejects.toThrow('answers 403');
  expect(asked).toHaveLength(2);
});
