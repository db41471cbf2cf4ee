/** The Python client and a gateway that fails, or that sends it elsewhere. */
import { execFile } from 'node:child_process';
import { createServer, type RequestListener, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, expect, it } from 'vitest';
import { patience } from '../../support/patience.ts';
import { atEnd, endAll } from '../../support/processes.ts';
import { NO_CLOUDPICKLE, PYTHON } from '../../support/python-with-cloudpickle.ts';
import { ROOT } from '../../support/where.ts';

afterEach(endAll);

/** Starts a server for this test and returns its address. */
async function serve(answer: RequestListener): Promise<string> {
  const server = createServer(answer).listen(0, '127.0.0.1');
  atEnd(() => void server.close());
  await new Promise((resolve) => server.once('listening', resolve));
  const address = server.address();
  return `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`;
}

it('the client takes its key to no other address, whatever an answer points to', async () => {
  const heard: unknown[] = [];
  const elsewhere = await serve(({ headers }, response) => {
    heard.push(headers.authorization);
    response.end('{}');
  });
  const gateway = await serve((_, response) => void response.writeHead(302, { location: elsewhere }).end());
  const ask = 'import opentela; opentela.Client().gateway.request("GET", "/files")';
  const env = { PATH: process.env.PATH ?? '', OTELA_GATEWAY: gateway, OTELA_API_KEY: 'sk-secret' };
  const asked = promisify(execFile)(PYTHON, ['-c', ask], {
    env: { ...env, PYTHONPATH: join(ROOT, 'clients/python') },
    timeout: 60_000,
  });
  await expect(asked).rejects.toThrow('302');
  expect(heard).toEqual([]);
});

interface StandIn {
  url: string;
  /** The `custom_id`s of the batch's lines. */
  ids: string[];
  /** File names. */
  uploaded: string[];
  created: number;
  cancelled: number;
}

/**
 * A mock gateway with the result of one line. It fails as `breaks` decides, which returns true if it wrote the response
 * itself.
 */
async function standIn(breaks: (path: string, response: ServerResponse) => boolean): Promise<StandIn> {
  const state: StandIn = { url: '', ids: [], uploaded: [], created: 0, cancelled: 0 };
  let metadata: unknown;
  const batch = (status: string) => ({
    id: 'batch_1',
    status,
    metadata,
    output_file_id: 'file-out',
    error_file_id: null,
  });
  const line = () => JSON.stringify({ custom_id: state.ids[0], response: { body: { output: 42 } } });
  state.url = await serve((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => void chunks.push(chunk));
    request.on('end', () => {
      const path = `${request.method} ${request.url}`;
      if (path === 'POST /v1/batches') {
        state.created++;
        metadata = (JSON.parse(Buffer.concat(chunks).toString()) as { metadata: unknown }).metadata;
      }
      if (path.endsWith('/cancel')) state.cancelled++;
      if (path === 'POST /v1/files') {
        const text = Buffer.concat(chunks).toString();
        state.uploaded.push(/filename="([^"]*)"/.exec(text)?.[1] ?? '');
        state.ids.push(...[...text.matchAll(/^\{"custom_id":"([^"]*)"/gm)].map(([, id = '']) => id));
      }
      if (breaks(path, response)) return;
      if (path.startsWith('GET /v1/files?limit=')) {
        const data = state.uploaded.map((filename) => ({ id: 'file-in', filename }));
        return response.end(JSON.stringify({ data }));
      }
      if (path.startsWith('POST /v1/files')) return response.end(JSON.stringify({ id: 'file-in' }));
      if (path === 'GET /v1/batches?limit=100')
        return response.end(JSON.stringify({ data: state.created > 0 ? [batch('in_progress')] : [] }));
      if (path === 'POST /v1/batches') return response.end(JSON.stringify(batch('validating')));
      if (path.startsWith('GET /v1/files')) return response.end(line());
      // A gateway of an earlier version, without the results of running batches.
      if (path.includes('/results')) return response.writeHead(404).end('{"error":{"message":"not found"}}');
      return response.end(JSON.stringify(batch('completed')));
    });
  });
  return state;
}

/** Runs one input, after `first`. */
const runAll = ({ url }: StandIn, first = 'pass') => {
  const ask = `import opentela; from opentela import _sent; ${first}; print(list(opentela.Client().map(lambda x: x, [1])))`;
  const env = { PATH: process.env.PATH ?? '', OTELA_GATEWAY: url, OTELA_API_KEY: 'sk' };
  return promisify(execFile)(PYTHON, ['-c', ask], {
    env: { ...env, PYTHONPATH: join(ROOT, 'clients/python') },
    timeout: patience(60_000),
  });
};

const run = async (gateway: StandIn) => (await runAll(gateway)).stdout.trim();

it('a file whose answer was lost is found again, and not uploaded a second time', async ({ skip }) => {
  skip(NO_CLOUDPICKLE !== undefined, NO_CLOUDPICKLE);
  let lost = false;
  const gateway = await standIn((path, response) => {
    if (path !== 'POST /v1/files' || lost) return false;
    lost = true;
    response.destroy();
    return true;
  });
  expect(await run(gateway)).toBe('[42]');
  expect(gateway.uploaded.map((name) => name.replace(/-[0-9a-f-]*\..*/, ''))).toEqual(['function', 'inputs']);
});

it('a batch whose answer was lost is found again, and not made a second time', async ({ skip }) => {
  skip(NO_CLOUDPICKLE !== undefined, NO_CLOUDPICKLE);
  let lost = false;
  const gateway = await standIn((path, response) => {
    if (path !== 'POST /v1/batches' || lost) return false;
    lost = true;
    response.destroy();
    return true;
  });
  expect(await run(gateway)).toBe('[42]');
  expect(gateway).toMatchObject({ created: 1, cancelled: 0 });
});

it('a poll that breaks off, says nonsense or fails does not cancel the batch', async ({ skip }) => {
  skip(NO_CLOUDPICKLE !== undefined, NO_CLOUDPICKLE);
  const broken: ((response: ServerResponse) => void)[] = [
    (response) => {
      response.writeHead(200, { 'content-length': '100' });
      response.write('{"status":', () => response.destroy());
    },
    (response) => response.end('{"status": "com'),
    (response) => response.writeHead(500).end('{"error":{}}'),
  ];
  const gateway = await standIn((path, response) => {
    const next = path === 'GET /v1/batches/batch_1' ? broken.shift() : undefined;
    next?.(response);
    return next !== undefined;
  });
  expect(await run(gateway)).toBe('[42]');
  expect(broken).toEqual([]);
  expect(gateway).toMatchObject({ created: 1, cancelled: 0 });
});

it('while no node takes a line, the client says once what it waits for', async ({ skip }) => {
  skip(NO_CLOUDPICKLE !== undefined, NO_CLOUDPICKLE);
  let polls = 3;
  const gateway = await standIn((path, response) => {
    if (path !== 'GET /v1/batches/batch_1' || polls-- <= 0) return false;
    response.end('{"id":"batch_1","status":"in_progress","x_otela":{"nodes":0}}');
    return true;
  });
  const { stdout, stderr } = await runAll(gateway, '_sent.SILENT_S = 0');
  expect([stdout.trim(), stderr.trim()]).toEqual([
    '[42]',
    'batch_1 waits: no node runs it yet. Functions run only on nodes that allow them (--allow-functions).',
  ]);
});

it('a result with a line’s end of Unicode in it is one result', async ({ skip }) => {
  skip(NO_CLOUDPICKLE !== undefined, NO_CLOUDPICKLE);
  const text = 'a\u2028b\u0085c\u000bd';
  const gateway = await standIn((path, response) => {
    if (path !== 'GET /v1/files/file-out/content') return false;
    const line = { custom_id: gateway.ids[0], response: { body: { output: text } } };
    response.end(`${JSON.stringify(line)}\n`);
    return true;
  });
  expect(await run(gateway)).toBe(String.raw`['a\u2028b\x85c\x0bd']`);
});

it.each([
  ['an address without its scheme', 'gw.example.org', 'sk', 'begins with https://'],
  ['a key with what no header has', 'http://127.0.0.1:9', 'sk-secret\u2026', 'characters that are not allowed'],
  ['a key in two lines', 'http://127.0.0.1:9', 'sk-secret\nsk-other', 'characters that are not allowed'],
])('%s is refused at once, and no key is told', async (_, gateway, key, said) => {
  const ask = `import opentela, sys; opentela.Client(*sys.argv[1:]).gateway.request("GET", "/files", away_s=5)`;
  const asked = promisify(execFile)(PYTHON, ['-c', ask, gateway, key], {
    env: { PATH: process.env.PATH ?? '', PYTHONPATH: join(ROOT, 'clients/python') },
    timeout: patience(60_000),
  });
  const error: unknown = await asked.catch((reason: unknown) => reason);
  const told = error instanceof Error && 'stderr' in error ? String(error.stderr) : '';
  expect(told).toContain(said);
  expect(told).not.toContain('sk-secret');
});

it('a key that was read with its line’s end is the key', async () => {
  let heard: unknown;
  const gateway = await serve(({ headers }, response) => {
    heard = headers.authorization;
    response.end('{}');
  });
  const ask = `import opentela, sys; opentela.Client(*sys.argv[1:]).gateway.request("GET", "/files", away_s=5)`;
  await promisify(execFile)(PYTHON, ['-c', ask, gateway, 'sk-secret\n'], {
    env: { PATH: process.env.PATH ?? '', PYTHONPATH: join(ROOT, 'clients/python') },
    timeout: patience(60_000),
  });
  expect(heard).toBe('Bearer sk-secret');
});
