/** `otela-gateway keys|users|projects|providers|tokens|usage|trace|audit`, as an operator types them. */
import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { endAll, eventually } from '../support/processes.ts';
import { chatBody, MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';
import { GATEWAY_MAIN, NODE } from '../support/where.ts';

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster();
});
afterAll(endAll);

interface Said {
  code: number;
  out: string;
  err: string;
}

async function otela(...args: string[]): Promise<Said> {
  const door = ['--url', cluster.gateway.url, '--key-file', join(cluster.gateway.data, 'admin.key')];
  const command = [GATEWAY_MAIN, ...args, ...door];
  try {
    const { stdout, stderr } = await promisify(execFile)(NODE, command);
    return { code: 0, out: stdout, err: stderr };
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && 'stdout' in error && 'stderr' in error)) throw error;
    return { code: Number(error.code), out: String(error.stdout), err: String(error.stderr) };
  }
}
const ask = (key: string, more: object = {}) =>
  cluster.ask(
    '/v1/chat/completions',
    { ...chatBody({ tokens: 2 }), ...more },
    { headers: { authorization: `Bearer ${key}` } },
  );

it('a project, a key in it, its limits, its rotation and its end', async () => {
  const project = JSON.parse((await otela('projects', 'create', '--name', 'Physics', '--trace', 'yes', '--json')).out);
  expect(project).toMatchObject({ object: 'project', trace: true });
  const made = await otela(
    'keys',
    'create',
    '--name',
    'ada',
    '--project',
    project.id,
    '--models',
    `${MODEL},other/*`,
    '--rpm',
    '100',
    '--expires',
    '90d',
  );
  expect(made.err).toContain('Shown only once');
  const key = made.out.trim();
  expect(key).toMatch(/^sk-otela-[\w-]{43}$/);
  expect((await ask(key)).status).toBe(200);
  expect((await ask(key, { model: 'not/mine' })).status).toBe(403);
  const line = (await otela('keys', 'list')).out.split('\n').find((one) => one.includes('ada')) ?? '';
  const id = line.split('  ')[0] ?? '';
  expect(line).toContain(key.slice(0, 15));
  expect(line).not.toContain(key);
  expect((await otela('keys', 'set', id, '--tpm', '5000', '--models', 'any')).code).toBe(0);
  const shown = JSON.parse((await otela('keys', 'show', id)).out);
  expect(shown).toMatchObject({ models: null, limits: { requests_per_minute: 100, tokens_per_minute: 5_000 } });
  await otela('keys', 'set', id, '--rpm', 'none');
  expect(JSON.parse((await otela('keys', 'show', id)).out).limits).toEqual({ tokens_per_minute: 5_000 });
  const next = (await otela('keys', 'rotate', id, '--overlap', '1h')).out.trim();
  for (const one of [key, next]) expect((await ask(one)).status).toBe(200);
  expect((await otela('keys', 'revoke', id)).out).toContain('revoked');
  await eventually('the old key refused', 5_000, async () => ((await ask(key)).status === 401 ? true : undefined));
  expect((await otela('audit')).out).toMatch(new RegExp(`key.revoke +${id}`));
  const from = new Date(Date.now() - 3_600_000).toISOString();
  const to = new Date(Date.now() + 3_600_000).toISOString();
  const trace = await eventually('the trace', 15_000, async () => {
    const { out } = await otela('trace', 'export', '--from', from, '--to', to);
    const lines = out.split('\n');
    return lines.filter((line) => line.includes('"status":200')).length > 2 ? out : undefined;
  });
  const first = trace.split('\n').find((line) => line.includes('"status":200')) ?? '';
  // For the model that the key may not use: no engine saw the request, and it is on record.
  expect(trace).toMatch(/"model":"not\/mine".*"status":403.*"error":"model_not_allowed"/);
  expect(JSON.parse(first)).toMatchObject({
    model: MODEL,
    output_tokens: 2,
    status: 200,
    provider: 'lab',
    streamed: false,
  });
  expect(JSON.parse(first).key).toMatch(/^[0-9a-f]{16}$/);
  expect(trace).not.toContain(id);
  const csv = (await otela('trace', 'export', '--from', from, '--to', to, '--format', 'csv')).out.split('\n');
  expect(csv[0]).toContain('timestamp,model,user,key');
  expect(csv[1]?.split(',')).toHaveLength(csv[0]?.split(',').length ?? 0);
  const stats = (await otela('trace', 'stats', '--from', from, '--to', to)).out;
  expect(stats).toMatch(new RegExp(`${MODEL} +\\d+ +0 +0`));
  expect(stats).toMatch(/not\/mine +1 +1 +0/);
  await eventually('the hour’s totals', 15_000, async () => {
    const { out } = await otela('usage', '--by', 'model,provider');
    return new RegExp(`${MODEL} +lab +\\d+`).test(out) ? true : undefined;
  });
});

it('settings of the whole gateway are shown and set, and go back to their defaults', async () => {
  expect((await otela('settings')).out).toMatch(/^setting +value\ndefault_trust +"admitted"$/m);
  expect((await otela('settings', 'set', 'default_trust', 'marked')).out).toBe(
    'default_trust  "admitted" → "marked"\n',
  );
  expect((await otela('settings', 'set', 'public_url', 'https://llm.example.org')).out).toContain('llm.example.org');
  expect(JSON.parse((await otela('settings', 'set', 'public_url', 'null', '--json')).out)).toMatchObject({
    public_url: null,
  });
  expect((await otela('settings', 'set', 'default_trust', 'null')).out).toBe('default_trust  "marked" → "admitted"\n');
  expect((await otela('settings', 'set', 'default_trust', 'null')).out).toBe('default_trust  "admitted", unchanged\n');
  const misspelt = await otela('settings', 'set', 'defalt_trust', 'marked');
  expect([misspelt.code, misspelt.err]).toEqual([2, expect.stringContaining('did you mean default_trust?')]);
  expect((await otela('settings', 'sett', 'default_trust', 'marked')).err).toContain('Did you mean settings set?');
  const wrong = await otela('settings', 'set', 'default_trust', 'everybody');
  expect([wrong.code, wrong.err]).toEqual([1, expect.stringContaining('default_trust')]);
});

it('users, providers and tokens', async () => {
  expect((await otela('providers', 'create', 'psi', '--default', 'no')).out).toContain('psi');
  const token = await otela(
    'tokens',
    'create',
    '--provider',
    'psi',
    '--cluster',
    'merlin',
    '--max-nodes',
    '4',
    '--expires',
    '7d',
  );
  expect(token.out.trim()).toMatch(/^otela-join-/);
  expect((await otela('tokens', 'list')).out).toMatch(
    /^id +provider +cluster +nodes +max nodes [\s\S]*psi +merlin +0 +4/,
  );
  const user = JSON.parse(
    (await otela('users', 'create', '--name', 'Pat', '--role', 'provider', '--provider', 'psi', '--json')).out,
  );
  expect((await otela('users', 'set', user.id, '--disabled', 'yes')).out).toContain('disabled');
  expect((await otela('providers', 'revoke', 'psi')).out).toContain('deleted');
  expect((await otela('tokens', 'list')).out).toContain('revoked');
});

it.each([
  [['keys', 'create'], /name/],
  [['keys', 'frobnicate'], /usage/],
  [['keys', 'show', 'key_nobody'], /no key/],
  [['keys', 'create', '--name', 'a', '--rpm', 'many'], /whole number/],
  [['keys', 'create', '--name', 'a', '--no-track', 'maybe'], /yes or no/],
  [['keys', 'create', '--name', 'a', '--expires', 'soon'], /--expires/],
  [['usage', '--by', 'weather'], /group_by/],
  [['trace', 'export'], /--from/],
  [['trace', 'stats', 'x', '--nodes', 'y'], /--nodes works only with plot/],
  [['nodes', 'list', '--session', 'abc'], /--session works only with history/],
  [['nodes', 'history', '--model', 'm'], /--model works only with list/],
  [['catalogue', '--always-on', 'yes'], /usage: otela-gateway catalogue list/],
])('%j is refused with the reason and no stack', async (args, reason) => {
  const { code, err } = await otela(...args);
  expect(code).not.toBe(0);
  expect(err).toMatch(reason);
  expect(err).not.toMatch(/\n {4}at /);
});

const create = async (...args: string[]) => JSON.parse((await otela(...args, '--json')).out);
const heads = (out: string) => out.split('\n')[0]?.split(/ {2,}/);

it('members of a project, and their limits', async () => {
  const project = await create('projects', 'create', '--name', 'Biology');
  const ada = await create('users', 'create', '--name', 'Ada');
  expect((await otela('members', 'add', project.id, ada.id)).out).toMatch(/^user_\S+ {2}member {2}here .* {2}Ada\n$/);
  expect((await otela('members', 'set', project.id, ada.id, '--lead', 'yes')).out).toContain('  lead  ');
  const members = (await otela('members', 'list', project.id)).out;
  expect(heads(members)).toEqual(['user', 'role', 'granted', 'limits', 'since', 'name']);
  expect(members).toContain(ada.id);
  expect(JSON.parse((await otela('members', 'list', project.id, '--json')).out)).toMatchObject({ lead: true });
  const limit = (...flags: string[]) => otela('members', 'set', project.id, ada.id, ...flags);
  expect((await limit('--rpm', '60', '--monthly-tokens', '9')).out).toContain('  rpm=60 monthly-tokens=9  ');
  expect((await limit('--rpm', 'none')).out).toContain('  monthly-tokens=9  ');
  expect((await limit('--monthly-tokens', 'none')).out).toMatch(/here {2}– /);
  expect((await otela('members', 'list', project.id, '--rpm', '1')).err).toContain('members list takes no --rpm');
  expect((await otela('members', 'remove', project.id, ada.id)).out).toBe(`${ada.id}  removed\n`);
  expect((await otela('members', 'remove', project.id, ada.id)).out).toBe(`${ada.id} is not a member\n`);
  expect(await otela('members', 'lisst', project.id)).toMatchObject({ code: 2, err: expect.stringContaining('list') });
});

it('requests for access, and the catalogue', async () => {
  const ada = await create('users', 'create', '--name', 'Ada');
  expect(heads((await otela('access', 'list')).out)).toEqual(['id', 'status', 'who', 'requests', 'when', 'reason']);
  const unknown = await otela('access', 'approve', 'req_x');
  expect([unknown.code, unknown.err]).toEqual([1, expect.stringContaining('There is no request with id "req_x"')]);

  const set = ['catalogue', 'set', 'org/old', '--deprecated', '2027-01-31', '--sunset', '2027-06-30'];
  const told = ['--owner', ada.id, '--access', 'group:beta', '--always-on', 'yes', '--successor', 'org/new'];
  expect((await otela(...set, ...told)).out).toBe(
    `org/old  ${ada.id}  group:beta  yes  2027-01-31  2027-06-30  org/new\n`,
  );
  await otela('catalogue', 'set', 'org/old', '--access', 'any', '--owner', 'none', '--sunset', 'none');
  const [head = '', line = ''] = (await otela('catalogue', 'list')).out.split('\n');
  expect(head.split(/ {2,}/)).toContain('sunset (UTC)');
  expect(line.split(/ {2,}/)).toEqual(['org/old', '–', 'any', 'yes', '2027-01-31', '–', 'org/new']);
  expect((await otela('catalogue', 'set', 'org/old', '--sunset', '45')).err).toContain('a date such as 2027-06-30');
  expect((await otela('catalogue', 'list', '--owner', 'x')).err).toContain('takes no --owner');
  expect((await otela('catalogue', 'set', 'org/old', '--sunest', 'none')).err).toContain('--sunset');
  expect((await otela('catalogue', 'remove', 'org/old')).out).toBe('org/old  removed\n');
});

it('a workload is what was asked of each model lately', async () => {
  const key = await cluster.gateway.createKey();
  for (let n = 0; n < 5; n++) await (await ask(key)).text();
  const found = await eventually('the workload', 15_000, async () => {
    const { data } = (await cluster.gateway.admin('GET', 'workload?window=10m')) as { data: { requests: number }[] };
    return (data[0]?.requests ?? 0) >= 5 ? data[0] : undefined;
  });
  expect(found).toMatchObject({ model: MODEL, output: { mean: 2, deviation: 0, p50: 2, p95: 2 } });
});

it('a batch is made of a file and watched, and its answers are written to a file', async () => {
  const input = join(cluster.gateway.data, 'claims.jsonl');
  const line = (id: string) =>
    JSON.stringify({
      custom_id: id,
      method: 'POST',
      url: '/v1/chat/completions',
      body: { ...chatBody({ tokens: 2 }), stream: undefined },
    });
  await writeFile(input, `${['a', 'b', 'c'].map(line).join('\n')}\n`);
  const made = await otela('batches', 'create', input, '--endpoint', 'chat/completions', '--metadata', 'study=claims');
  expect(made.err).toMatch(/claims\.jsonl is file-[0-9a-f]{24}/);
  const [id = ''] = made.out.split('  ');
  const batch = await eventually('its end', 30_000, async () => {
    const shown = JSON.parse((await otela('batches', 'get', id)).out);
    return shown.status === 'completed' ? shown : undefined;
  });
  expect(batch).toMatchObject({ metadata: { study: 'claims' }, request_counts: { total: 3, completed: 3 } });
  expect((await otela('batches', 'list')).out).toMatch(
    new RegExp(`${id} +completed +3/3 +0 failed +– +– +chat/completions`),
  );
  const used = JSON.parse((await otela('usage', '--by', 'batch', '--json')).out);
  expect(used).toMatchObject({ id, status: 'completed', model: MODEL, requests: 3, failed: 0, completion_tokens: 6 });
  expect((await otela('usage', '--by', 'batch')).out).toMatch(new RegExp(`^id .*\\n${id} +20\\d\\d-`));
  expect((await otela('usage', '--by', 'batch', '--model', 'another')).out.trim().split('\n')).toHaveLength(1);
  const out = join(cluster.gateway.data, 'answers.jsonl');
  expect((await otela('files', 'content', batch.output_file_id, '--out', out)).code).toBe(0);
  const answers = (await readFile(out, 'utf8')).trimEnd().split('\n');
  expect(answers.map((one) => JSON.parse(one).custom_id)).toEqual(['a', 'b', 'c']);
  expect((await otela('files', 'content', batch.output_file_id)).out).toBe(await readFile(out, 'utf8'));
  expect((await otela('batches', 'cancel', id)).err).toContain("Cannot cancel a batch with status 'completed'");
  expect((await otela('files', 'list')).out).toMatch(/^id +purpose +bytes [\s\S]*batch_output +\d+ +.* until 20/);
  expect((await otela('files', 'get', batch.input_file_id)).out).toContain('"filename":"claims.jsonl"');
  expect((await otela('files', 'delete', batch.output_file_id)).out).toContain('deleted');
  const put = await otela('files', 'put', input, '--purpose', 'user_data');
  expect(put.out).toMatch(/^file-[0-9a-f]{24} {2}user_data {2}\d+ {2}.* {2}stays {2}claims\.jsonl/);
});

it.each([
  [['batches', 'create', 'f.jsonl'], '--endpoint is missing'],
  [['batches', 'list', '--endpoint', 'embeddings'], '--endpoint works only with create'],
  [['batches', 'create', 'f', '--endpoint', 'e', '--metadata', 'x'], 'pairs such as study=claims'],
  [['batches', 'watch'], 'usage: otela-gateway batches'],
  [['files', 'put'], 'usage: otela-gateway files'],
  [['files', 'list', '--out', 'x'], '--out works only with content'],
])('%s is wrong use', async (args, words) => {
  const said = await otela(...args);
  expect([said.code, said.err]).toEqual([2, expect.stringContaining(words)]);
});

it('a file that cannot be read is told, and nothing is made', async () => {
  const said = await otela('files', 'put', '/no/such/file');
  expect([said.code, said.err]).toEqual([1, expect.stringContaining('cannot read /no/such/file')]);
});
