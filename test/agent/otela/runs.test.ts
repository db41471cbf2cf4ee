/** `otela runs` at a gateway that the test plays. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished, vi } from 'vitest';
import { main } from '../../../clients/otela/main.ts';

const RUN = 'run-1';

function batch(id: string, status: string, failed: number, more: Record<string, unknown> = {}) {
  const { metadata, ...rest } = { metadata: {}, ...more };
  return {
    id,
    status,
    endpoint: '/v1/otela/functions',
    created_at: 1,
    completion_window: '30d',
    input_file_id: `file-in-${id}`,
    error_file_id: failed > 0 ? `file-err-${id}` : null,
    metadata: { opentela_run: RUN, opentela_function: 'verify', opentela_context: 'c', ...(metadata as object) },
    request_counts: { total: 3, completed: 3 - failed, failed },
    x_otela: { nodes: 1, lines_per_s: 2.5, gpu_seconds: 1.5, waiting_for: null },
    ...rest,
  };
}

const counts = (total: number, completed: number, failed: number) => ({ request_counts: { total, completed, failed } });

const input = ['a', 'b', 'c'].map((name) => JSON.stringify({ custom_id: name, url: '/v1/otela/functions' })).join('\n');
const errors = [
  {
    custom_id: 'b',
    response: { body: { error: { code: 'function_failed', message: 'ValueError: \u001b[2Jno luck' } } },
  },
  { custom_id: null, error: { code: 'engine_failed', message: 'gone' } },
];
const unmet = ['b', 'late', 'free'].map((name) => ({ custom_id: name, error: { code: 'failed', message: 'gone' } }));
const dependent = [
  { custom_id: 'b', body: { input: [{ $result: [0, 0] }] } },
  { custom_id: 'late', body: {}, after: [[0, 1]] },
  { custom_id: 'free', body: {} },
  { custom_id: 'fine', body: { input: [{ $result: [0, 0] }] } },
];
const jsonLines = (of: unknown[]) => of.map((one) => `${JSON.stringify(one)}\n`).join('');
/** Contents of files by id; of others, `input`. */
const contents: Record<string, string> = {
  'file-err-1': `not json\n${jsonLines(errors)}`,
  'file-err-unmet': jsonLines(unmet),
  'file-dependent': jsonLines(dependent),
};

/** @param batches per request of the list, the last one repeatedly */
async function gateway(...batches: ReturnType<typeof batch>[][]) {
  const asked: { method: string; path: string; body: string; key: string }[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => void chunks.push(chunk));
    request.on('end', () => {
      const [method = '', path = ''] = [request.method, request.url];
      const body = Buffer.concat(chunks).toString();
      asked.push({ method, path, body, key: request.headers.authorization ?? '' });
      if (path.includes('/content')) return void response.end(contents[path.split('/')[3] ?? ''] ?? input);
      if (path.endsWith('/log')) return void response.end('{"text":"loaded \\u001b[2J\\n"}');
      if (method === 'POST') return void response.end('{"id":"file-new"}');
      const [now = []] = batches.length > 1 ? batches.splice(0, 1) : batches;
      response.end(JSON.stringify({ data: now, has_more: false }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  vi.stubEnv('OTELA_API_KEY', 'sk-test');
  onTestFinished(() => void vi.unstubAllEnvs());
  const runs = async (...words: string[]) => {
    const lines: string[] = [];
    const say = (line: string) => void lines.push(line);
    const code = await main(['runs', ...words, '--gateway', url], { print: say, complain: say });
    return { code, lines };
  };
  return { asked, runs };
}

it('batches of one run are one row; other batches are none', async () => {
  const { runs, asked } = await gateway([
    batch('2', 'in_progress', 1),
    batch('1', 'completed', 0),
    batch('0', 'completed', 0, { metadata: { opentela_run: undefined } }),
  ]);
  const { code, lines } = await runs();
  expect(code).toBe(0);
  expect(lines).toHaveLength(2);
  expect(lines[1]).toMatch(/^run-1\s+verify\s+running\s+5\/6\s+1\s+5\.0\s+2\s+3\.0$/);
  expect(asked[0]?.key).toBe('Bearer sk-test');
});

it('a run is watched until it has ended, and the exit code says if calls failed', async () => {
  const { runs } = await gateway([batch('1', 'in_progress', 0)], [batch('1', 'completed', 1)]);
  const { code, lines } = await runs('watch', RUN);
  expect(code).toBe(1);
  expect(lines.map((line) => line.split(/\s+/)[2])).toEqual(['STATUS', 'running', 'completed']);
});

const RETRY = { metadata: { opentela_run: RUN, opentela_retry_of: '1' } };

it.each([
  ['all calls have results', 0, [batch('1', 'completed', 0)]],
  ['calls of a cancelled batch did not run', 1, [batch('1', 'cancelled', 0, counts(3, 1, 0))]],
  ['the input was refused', 1, [batch('1', 'failed', 0, counts(0, 0, 0))]],
  [
    'the failed call was retried',
    0,
    [batch('2', 'completed', 0, { ...RETRY, ...counts(1, 1, 0) }), batch('1', 'completed', 1)],
  ],
  [
    'the retried call failed',
    1,
    [batch('2', 'completed', 1, { ...RETRY, ...counts(1, 0, 1) }), batch('1', 'completed', 1)],
  ],
  [
    'one of two failed calls was retried',
    1,
    [batch('2', 'completed', 0, { ...RETRY, ...counts(1, 1, 0) }), batch('1', 'completed', 2)],
  ],
])('watch, if %s: exit code %i', async (_, code, batches) => {
  const { runs } = await gateway(batches);
  expect(await runs('watch', RUN)).toMatchObject({ code });
});

it('logs say what calls printed, and why calls failed; what a function said does not control the terminal', async () => {
  const { runs } = await gateway([batch('1', 'completed', 2)]);
  const { lines } = await runs('logs', RUN);
  expect(lines.shift()).toMatch(/^loaded /);
  expect(lines[0]).toMatch(/^b function_failed: ValueError: .*no luck$/);
  expect(lines[0]).not.toContain('\u001b');
  expect(lines[1]).toBe(' engine_failed: gone');
});

it('failed calls are sent again once, as a batch of the run in which the script finds them', async () => {
  const limits = vi.spyOn(AbortSignal, 'timeout');
  onTestFinished(() => limits.mockRestore());
  const first = batch('1', 'completed', 2);
  const { runs, asked } = await gateway([first]);
  expect((await runs('retry', RUN)).lines).toEqual(['1 calls are sent again.']);
  const [file, made] = asked.filter(({ method }) => method === 'POST');
  expect(file?.body).toContain('{"custom_id":"b","url":"/v1/otela/functions"}');
  expect(file?.body).not.toContain('"custom_id":"a"');
  const metadata = { ...first.metadata, opentela_retry_of: '1' };
  expect(JSON.parse(made?.body ?? '')).toMatchObject({ input_file_id: 'file-new', completion_window: '30d', metadata });
  expect(limits.mock.calls).toContainEqual([15 * 60_000]);
  const again = await gateway([batch('2', 'in_progress', 0, { metadata }), first]);
  expect((await again.runs('retry', RUN)).lines).toEqual(['No call has failed, or all were sent again already.']);
});

it('a failed call that needs results is not sent again without them', async () => {
  const x_otela = { nodes: 1, lines_per_s: 0, after: ['batch-0'] };
  const first = batch('1', 'completed', 2, {
    x_otela,
    input_file_id: 'file-dependent',
    error_file_id: 'file-err-unmet',
  });
  const { runs, asked } = await gateway([first]);
  expect((await runs('retry', RUN)).lines).toEqual([
    '1 calls are sent again.',
    '2 calls need results of other calls. To send them, run the script again.',
  ]);
  const [file] = asked.filter(({ method }) => method === 'POST');
  expect(file?.body).toContain('"custom_id":"free"');
  expect(file?.body).not.toMatch(/"b"|"late"/);
});

it('a run is cancelled: each batch that is open', async () => {
  const { runs, asked } = await gateway([batch('2', 'in_progress', 0), batch('1', 'completed', 0)]);
  await runs('cancel', RUN);
  expect(asked.filter(({ method }) => method === 'POST').map(({ path }) => path)).toEqual(['/v1/batches/2/cancel']);
});

it.each([
  [['watch'], 'a run is missing'],
  [['watch', 'run-2'], 'there is no run "run-2"'],
  [['stop', RUN], '"stop" is not one of list, watch, logs, retry, cancel'],
  [['logs', RUN, '--json'], '--json belongs to otela runs list'],
])('%j is refused with what to do', async (words, said) => {
  const { runs } = await gateway([batch('1', 'completed', 0)]);
  const { code, lines } = await runs(...words);
  expect(code).not.toBe(0);
  expect(lines.join('\n')).toContain(said);
});
