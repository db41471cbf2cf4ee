/**
 * The Node host's socket under requests that two parsers could read in two ways, next to a parser that accepts none of
 * them (`support/http-fuzz/rfc9112.ts`). `OTELA_FUZZ_SECONDS` and `OTELA_FUZZ_SEED` set the duration and the seed: `npm
 * run soak -- http` runs for ten minutes.
 */
import { randomInt } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, expect, it } from 'vitest';
import { INSPECTED, retainedMib } from '../support/heap.ts';
import { type Fuzzed, fuzz } from '../support/http-fuzz/fuzz.ts';
import { readRequests } from '../support/http-fuzz/rfc9112.ts';
import { patience } from '../support/patience.ts';
import { memoryOf } from '../support/process-table.ts';
import { atEnd, endAll } from '../support/processes.ts';
import { MODEL, openTestCluster, stillServes, type TestCluster } from '../support/test-cluster.ts';

const SECONDS = process.env.OTELA_FUZZ_SECONDS === undefined ? undefined : Number(process.env.OTELA_FUZZ_SECONDS);
/** Number of cases if no duration is given. */
const CASES = 3_000;
const SEED = Number(process.env.OTELA_FUZZ_SEED ?? randomInt(1_000_000));
/** Share of the time after which code is compiled and caches are full. */
const WARM_PART = 1 / 3;
/**
 * Maximum growth that remains after a garbage collection. A leak of some hundred bytes per case would be ten times as
 * much.
 */
const RETAINED_MIB = 3;
const RESIDENT_MIB = 60;

afterAll(endAll);

/** Returns those of the newest 2,000 bodies at the engine that the judge did not read. */
function strangers(cluster: TestCluster, { bodies }: Fuzzed): string[] {
  const whole = cluster.engine.requests.filter(
    ({ url, finishedAt }) => url.includes('audio') && finishedAt !== undefined,
  );
  expect(whole.length, 'requests at the engine').toBeGreaterThan(0);
  return whole.filter(({ bodySha256 }) => !bodies.has(bodySha256)).map(({ bodyStart }) => bodyStart);
}

it(`no byte of one request is read as another's, nothing ends, nothing grows (seed ${SEED})`, {
  timeout: patience(90_000) + (SECONDS ?? 0) * 1_000,
}, async () => {
  console.log(`OTELA_FUZZ_SEED=${SEED}`);
  const cluster = await openTestCluster({ gateway: { env: INSPECTED } });
  const { process: gateway } = cluster.gateway;
  const target = { host: new URL(cluster.gateway.url).host, key: cluster.key, model: MODEL };
  const part = (from: number, share: number) =>
    fuzz(cluster.gateway.url, target, {
      seed: SEED,
      from,
      ...(SECONDS === undefined ? { cases: CASES * share } : { untilMs: Date.now() + SECONDS * share * 1_000 }),
    });

  const first = await part(0, WARM_PART);
  expect(first.disagreements.join('\n\n')).toBe('');
  const before = { retained: await retainedMib(gateway), resident: memoryOf(gateway.pid).rssMib };
  const second = await part(first.cases, 1 - WARM_PART);
  expect(second.disagreements.join('\n\n')).toBe('');
  const after = { retained: await retainedMib(gateway), resident: memoryOf(gateway.pid).rssMib };

  const cases = first.cases + second.cases;
  const told = Object.entries(after).map(
    ([name, mib]) => `${name} ${before[name as keyof typeof before].toFixed(1)} → ${mib.toFixed(1)} MiB`,
  );
  console.log(
    `${cases} cases, ${first.requests + second.requests} requests; stricter than the judge in ${first.stricter + second.stricter}; ${told.join(', ')}`,
  );
  expect(strangers(cluster, { ...second, bodies: new Set([...first.bodies, ...second.bodies]) })).toEqual([]);
  expect(after.retained - before.retained).toBeLessThan(RETAINED_MIB);
  expect(after.resident - before.resident).toBeLessThan(RESIDENT_MIB);
  expect(gateway.running).toBe(true);
  expect(await stillServes(cluster)).toBe(200);
});

/**
 * A server with faults that real servers had: `lenient` accepts a bare LF, folded lines, and a length together with
 * chunks.
 */
async function lenient(): Promise<string> {
  const server: Server = createServer({ insecureHTTPParser: true }, (request, response) => {
    request.on('error', () => {});
    request.resume().on('end', () => response.writeHead(404).end(`'${request.url?.split('/').at(-1)}'`));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

it('a parser that takes what RFC 9112 forbids is found out', async () => {
  const url = await lenient();
  const target = { host: new URL(url).host, key: 'sk-none', model: MODEL };
  const { disagreements } = await fuzz(url, target, { seed: 1, cases: 400, patientMs: 300 });
  expect(disagreements.some((one) => / before (?!nothing)/.test(one))).toBe(true);
});

it.each([
  ['a length', 'POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nab', 1, 'nothing'],
  ['chunks', 'POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n2;x\r\nab\r\n0\r\n\r\n', 1, 'nothing'],
  ['two requests', 'GET /1 HTTP/1.1\r\nhost: h\r\n\r\nGET /2 HTTP/1.1\r\nhost: h\r\n\r\n', 2, 'nothing'],
  ['the last of its connection', 'GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\nGET', 1, 'last'],
  ['half a body', 'POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nab', 0, 'part'],
  [
    'a length and chunks',
    'POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\n\r\n',
    0,
    'refused',
  ],
  ['LF alone', 'GET / HTTP/1.1\nhost: h\r\n\r\n', 0, 'refused'],
  ['a folded line', 'GET / HTTP/1.1\r\nhost: h\r\n b: c\r\n\r\n', 0, 'refused'],
  ['NUL', 'GET / HTTP/1.1\r\nhost: h\r\na: \0\r\n\r\n', 0, 'refused'],
  ['a chunk without its end', 'POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabc', 0, 'refused'],
])('the judge reads %s', (_name, bytes, requests, rest) => {
  const reading = readRequests(bytes);
  expect([reading.requests.length, reading.rest]).toEqual([requests, rest]);
});
