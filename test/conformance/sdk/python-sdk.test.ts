/** The Python openai SDK, which sends `model` last and disconnects in its own way. */
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { pythonWith } from '../../support/abilities.ts';
import { promise } from '../../support/patience.ts';
import { endAll, Managed } from '../../support/processes.ts';
import { MODEL, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';
import { ROOT } from '../../support/where.ts';

const python = pythonWith(ROOT, 'openai');
let cluster: TestCluster | undefined;

beforeAll(async () => {
  if (python !== undefined) cluster = await openTestCluster();
});
afterAll(endAll);

it('does all it can do through the gateway', async ({ skip }) => {
  if (python === undefined || cluster === undefined) {
    return skip('no Python with the openai package: set OTELA_TEST_PYTHON, or let .ci/run make .ci/venv');
  }
  const { engine } = cluster;
  const run = new Managed(
    [python, join(ROOT, 'test/conformance/sdk/python-sdk.py'), cluster.base, cluster.key, MODEL],
    {
      label: 'python',
    },
  );
  const { code } = await run.end(50_000);
  const leftAt = Date.now();
  expect(code, run.output).toBe(0);
  expect(JSON.parse(run.output.trim().split('\n').at(-1) ?? '')).toEqual({
    chat: ['This is a stand-in engine', 5],
    stream: ['This is a stand-in engine', 0],
    usage: [5],
    tool: ['weather', { city: 'Bern' }],
    embeddings: [16, 16],
    responses: 'This is a',
    events: [3, 'response.completed'],
    models: [[MODEL], MODEL],
    'not found': ['NotFoundError', 'model_not_found'],
    unauthorized: ['AuthenticationError', 'invalid_api_key'],
    'bad request': 'BadRequestError',
    'broken stream': 'upstream_error',
    'left after': 5,
  });
  const left = await engine.when(
    (request) => request.bodyStart.includes('python-left') && request.abortedAt !== undefined,
    5_000,
    'the abort',
  );
  expect((left.abortedAt ?? 0) - leftAt).toBeLessThanOrEqual(promise(1_000));
});

it('takes the other address of a name whose first is dead, without a try of its own', async ({ skip }) => {
  if (python === undefined || cluster === undefined) return skip('no Python with the openai package');
  // Nothing listens on 127.0.0.2, and the gateway listens only on 127.0.0.1.
  const code = `import openai, socket, sys
known = socket.getaddrinfo
def two(host, port, *more, **named):
    if host != 'two-addresses.test': return known(host, port, *more, **named)
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, '', (one, port)) for one in ('127.0.0.2', '127.0.0.1')]
socket.getaddrinfo = two
c = openai.OpenAI(base_url=f'http://two-addresses.test:{sys.argv[1]}/v1', api_key=sys.argv[2], max_retries=0)
print(c.chat.completions.create(model=sys.argv[3], messages=[]).choices[0].message.content)`;
  const run = new Managed([python, '-c', code, new URL(cluster.base).port, cluster.key, MODEL], { label: 'python' });
  expect(await run.end(20_000), run.output).toMatchObject({ code: 0 });
  expect(run.output).toContain('stand-in');
});

it('runs batches, of a file sent whole and of one sent in parts', async ({ skip }) => {
  if (python === undefined || cluster === undefined) return skip('no Python with the openai package');
  const run = new Managed(
    [python, join(ROOT, 'test/conformance/sdk/python-batches.py'), cluster.base, cluster.key, MODEL],
    {
      label: 'python',
    },
  );
  const { code } = await run.end(100_000);
  expect(code, run.output).toBe(0);
  expect(JSON.parse(run.output.trim().split('\n').at(-1) ?? '')).toEqual({
    file: ['completed', 120, 120],
    chunked: ['completed', 120, 120],
    listed: 2,
    unknown: 404,
  });
});
