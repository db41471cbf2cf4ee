/** A function's process never waits for the gateway; the test plays a slow gateway. */
import { createHash } from 'node:crypto';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { BatchGatewayClient } from '../../../agent/batch/batch-gateway-client.ts';
import { CallSize } from '../../../agent/batch/functions/call-size.ts';
import { FunctionPackages } from '../../../agent/batch/functions/function-packages.ts';
import { FunctionRunner } from '../../../agent/batch/functions/function-runner.ts';
import { FunctionStarter } from '../../../agent/batch/functions/function-starter.ts';
import { LoadedFunctions } from '../../../agent/batch/functions/loaded-functions.ts';
import { toolRunner } from '../../../agent/host/run-tool.ts';
import { createSessionKey } from '../../../agent/mesh/channel/session-key.ts';
import { contextMessage } from '../../../shared/batch/function-context.ts';
import { patience } from '../../support/patience.ts';
import { labTicket } from '../support/fake-admission.ts';
import { scratch } from '../support/harness.ts';

const CODE = 'def infer(state, lines):\n    return lines\n';
const LEASES = 3;
const hash = (text: string) => createHash('sha256').update(text).digest('hex');

/** Commits of a lease are answered only when results of the next lease have arrived. */
async function slowGateway() {
  const held: ServerResponse[] = [];
  const committed = new Set<number>();
  let leases = 0;
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => void chunks.push(chunk));
    request.on('end', () => {
      const verb = request.url?.split('/').at(-1);
      if (verb === 'function') return void response.end(CODE);
      if (verb === 'renew') return void response.end('{"leased":true}');
      if (verb === 'chunk') return void response.end('{"body":{"input":1}}\n');
      if (verb === 'release' || (verb === 'lease' && leases === LEASES)) return void response.writeHead(204).end();
      if (verb !== 'lease') {
        const { chunk } = JSON.parse(Buffer.concat(chunks).toString()) as { chunk: number };
        committed.add(chunk);
        held.push(response);
        if (committed.size < 2) return;
        for (const one of held.splice(0)) one.end('{"leased":true,"again":[]}');
        return;
      }
      const lease = { batch: 'b', chunk: leases++, epoch: 1, bytes: 21, prefix: 0, open: [0], leaseMs: 60_000 };
      const made = { context: hash(contextMessage('lab', hash(CODE), undefined)), sha256: hash(CODE), owner: 'lab' };
      const answer = { ...lease, endpoint: '/v1/otela/functions', function: { ...made, model: 'function:file-1' } };
      response.end(JSON.stringify(answer));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`), committed };
}

/** @param interactive number of requests at the node's engine */
async function node(interactive: () => number, endsInMs = () => Number.POSITIVE_INFINITY) {
  const { url, committed } = await slowGateway();
  const temporary = scratch();
  const run = toolRunner({ PATH: process.env.PATH });
  const limits = { python: 'python3', loadMs: 60_000, callMs: 60_000, memoryBytes: 2 ** 30 };
  const log = () => {};
  const packages = new FunctionPackages({
    directory: join(temporary, 'packages'),
    env: {},
    run,
    limits: { installMs: 60_000, memoryBytes: 2 ** 30 },
    store: () => undefined,
    unpack: async () => {},
    log,
  });
  const options = { limits, env: {}, temporary, run, packages, sandbox: undefined, weights: () => undefined, log };
  const starter = new FunctionStarter(options);
  const key = createSessionKey();
  const host = new LoadedFunctions({ starter, loadedMax: 1, gpus: [], temporary, now: () => performance.now(), log });
  const runner = new FunctionRunner({
    gateways: () => [url],
    open: () => new BatchGatewayClient(url, () => ({ ticket: labTicket(key.publicKey), key }), undefined),
    host,
    owners: ['lab'],
    workers: 1,
    admitted: () => true,
    endsInMs,
    interactive,
    log,
  });
  onTestFinished(() => runner.close());
  return { committed, host };
}

it('functions wait while requests are at the engine, and run when it is idle', async () => {
  let asked = 0;
  const requests = () => (asked++ < 10 ? 1 : 0);
  const { committed } = await node(requests);
  expect(committed.size).toBe(0);
  await expect.poll(() => committed.size, { timeout: patience(30_000) }).toBe(LEASES);
  expect(asked).toBeGreaterThan(10);
});

it('a process runs the next lease while the gateway still stores the results of the last one', async () => {
  const { committed } = await node(() => 0);
  await expect.poll(() => [...committed], { timeout: patience(30_000) }).toEqual([0, 1, 2]);
});

it('no call begins that the end of the job would cut off: the lines go to other nodes', async () => {
  const context = hash(contextMessage('lab', hash(CODE), undefined));
  // The duration of the first call is unknown before it, so the call begins.
  const { committed, host } = await node(
    () => 0,
    () => 0,
  );
  await expect.poll(() => host.isBroken(context), { timeout: patience(30_000) }).toBe(true);
  expect([...committed]).toEqual([0]);
});

it('the time of a line is the mean of recent calls, so that leases are taken early enough', () => {
  const calls = new CallSize();
  expect(calls.lineMs).toBeUndefined();
  calls.took(1, 100);
  expect(calls.lineMs).toBe(100);
  calls.took(2, 100);
  expect(calls.lineMs).toBe(75);
});
