/** What a node accepts from a gateway that leases it a function; the test plays the gateway. */
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { BatchGatewayClient } from '../../../agent/batch/batch-gateway-client.ts';
import { FunctionPackages } from '../../../agent/batch/functions/function-packages.ts';
import { FunctionRunner } from '../../../agent/batch/functions/function-runner.ts';
import { FunctionStarter } from '../../../agent/batch/functions/function-starter.ts';
import { LoadedFunctions } from '../../../agent/batch/functions/loaded-functions.ts';
import { toolRunner } from '../../../agent/host/run-tool.ts';
import { createSessionKey } from '../../../agent/mesh/channel/session-key.ts';
import { contextMessage } from '../../../shared/batch/function-context.ts';
import { labTicket } from '../support/fake-admission.ts';
import { scratch } from '../support/harness.ts';

const CODE = 'def infer(lines):\n    return lines\n';
const hash = (text: string) => createHash('sha256').update(text).digest('hex');
const contextOf = (owner: string, name?: string, code = CODE) => hash(contextMessage(owner, hash(code), name));

/**
 * A node that runs only functions of `lab`, at a gateway that refuses `refusals` requests with 503 and then leases
 * `context` as a function of `lab`.
 */
async function leased(context: string, refusals = 0, code = CODE, temporary = scratch()) {
  const asked: string[] = [];
  const bodies: string[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => void chunks.push(chunk));
    request.on('end', () => void bodies.push(Buffer.concat(chunks).toString()));
    const verb = request.url?.split('/').at(-1) ?? '';
    asked.push(verb);
    if (verb === 'function') return void response.end(code);
    if (verb === 'chunk' && code !== CODE) return void response.end('{"body":{"input":1}}');
    if (asked.length <= refusals) return void response.writeHead(503).end();
    if (verb !== 'lease') return void response.writeHead(verb === 'release' ? 204 : 503).end();
    const lease = { batch: 'b', chunk: 0, epoch: 1, bytes: 20, prefix: 0, open: [0], endpoint: '/v1/otela/functions' };
    const made = { context, sha256: hash(code), owner: 'lab', model: 'function:file-1:other', name: 'other' };
    response.end(JSON.stringify({ ...lease, leaseMs: 60_000, function: made }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const key = createSessionKey();
  const lines: string[] = [];
  const log = (line: string) => void lines.push(line);
  const limits = { python: 'python3', loadMs: 60_000, callMs: 60_000, memoryBytes: 2 ** 30 };
  const run = toolRunner({ PATH: process.env.PATH });
  const packages = new FunctionPackages({
    directory: join(temporary, 'packages'),
    env: {},
    run,
    limits: { installMs: 60_000, memoryBytes: 2 ** 30 },
    store: () => undefined,
    unpack: async () => {},
    log,
  });
  const starter = new FunctionStarter({
    limits,
    env: {},
    temporary,
    run,
    packages,
    sandbox: undefined,
    weights: () => undefined,
    log,
  });
  const host = new LoadedFunctions({ starter, loadedMax: 1, gpus: [], temporary, now: () => 0, log });
  const runner = new FunctionRunner({
    gateways: () => [url],
    open: () => new BatchGatewayClient(url, () => ({ ticket: labTicket(key.publicKey), key }), undefined),
    host,
    owners: ['lab'],
    workers: 1,
    admitted: () => true,
    endsInMs: () => Number.POSITIVE_INFINITY,
    interactive: () => 0,
    log,
  });
  onTestFinished(async () => {
    await runner.close();
    server.closeAllConnections();
    server.close();
  });
  await expect.poll(() => asked.filter((verb) => verb === 'lease').length, { timeout: 30_000 }).toBeGreaterThan(1);
  return { asked, bodies, host, lines };
}

it.each([
  ['of another owner', contextOf('other', 'other')],
  ['of another name', contextOf('lab')],
  ['of nothing', 'x'],
])(
  'a context that is %s is no place for code: what is loaded there later would be the gateway’s',
  async (_what, context) => {
    const { asked, host, lines } = await leased(context);
    expect(asked).not.toContain('function');
    expect(asked).toContain('release');
    expect(host.held.stored).toEqual([]);
    expect(lines.join()).toContain('context in the request does not belong to the function');
  },
);

it('the context of owner, code and name is taken', async () => {
  const { asked, host } = await leased(contextOf('lab', 'other'));
  expect(asked).toContain('function');
  expect(host.held.stored).toEqual([contextOf('lab', 'other')]);
});

it.each([
  [1, false],
  [2, true],
])('after %i refusals with 503, the log has one: %s', async (refusals, logged) => {
  const { lines } = await leased('x', refusals);
  expect(lines.some((line) => line.includes('answers 503'))).toBe(logged);
});

it.each([
  ['GPUs', { gpus: 9 }, 'declares 9 GPUs for each process, and this node has 0'],
  ['memory', { memory_bytes: 2 ** 40 }, 'and this node allows 1024 MiB (--functions-memory)'],
  ['Python', { python: '3.99' }, 'declares Python 3.99'],
])(
  'a function whose %s this node does not have is declined: no line of it fails, and the node does not try it soon',
  async (_what, options, why) => {
    const code = JSON.stringify({ opentela_function: 1, options });
    const context = contextOf('lab', 'other', code);
    const { asked, bodies, host } = await leased(context, 0, code);
    expect(asked).not.toContain('commit');
    expect(bodies.some((body) => body.includes('"declined":') && body.includes(why))).toBe(true);
    expect(host.held.broken).toEqual([context]);
  },
);

it('a node whose temporary directory cannot be written pauses the function, and logs that once', async () => {
  const context = contextOf('lab', 'other', `${CODE}#`);
  const { asked, host, lines } = await leased(context, 0, `${CODE}#`, '/dev/null/none');
  await expect.poll(() => host.held.broken, { timeout: 30_000 }).toEqual([context]);
  await expect.poll(() => asked.filter((verb) => verb === 'release').length, { timeout: 30_000 }).toBeGreaterThan(2);
  expect(lines.filter((line) => line.includes('mkdtemp'))).toHaveLength(1);
});
