import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { FactReader, type ListedModel } from '../../../../agent/engine/facts/fact-reader.ts';
import { scratch } from '../../support/harness.ts';

type Answers = Record<string, unknown>;

interface Setting extends Partial<Pick<ConstructorParameters<typeof FactReader>[0], 'readCheckpoint' | 'filesMs'>> {
  answers?: Answers;
  key?: string;
  command?: string[];
  /** Other host name in the engine's address. */
  host?: string;
  /** Variables of the agent. */
  env?: Record<string, string>;
}

/** A reader and its engine. An answer of `null` breaks the connection, and a missing one is a 404. */
async function start({ answers = {}, key, command, host = '127.0.0.1', env, ...files }: Setting = {}) {
  const asked: string[] = [];
  const lines: string[] = [];
  const seen: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    asked.push(request.url ?? '');
    seen.push(request);
    const answer = answers[request.url ?? ''];
    if (answer === null) return void request.socket.destroy();
    response.writeHead(answer === undefined ? 404 : 200, { 'content-type': 'application/json' });
    response.end(typeof answer === 'string' ? answer : JSON.stringify(answer ?? {}));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const port = typeof address === 'object' ? address?.port : 0;
  const clock = { now: 0 };
  let change = () => {};
  const reader = new FactReader({
    target: { origin: `http://${host}:${port}`, pathPrefix: '', ...(key === undefined ? {} : { key }) },
    ...files,
    command,
    env: { HOME: '/nowhere', ...env },
    onChange: () => change(),
    log: (line) => lines.push(line),
    now: () => clock.now,
  });
  onTestFinished(async () => {
    await reader.close();
    server.closeAllConnections();
    server.close();
  });
  const changed = () =>
    new Promise<void>((resolve) => {
      change = resolve;
    });
  return { reader, asked, lines, seen, clock, changed, answers };
}

const VLLM: ListedModel = { id: 'm', ownedBy: 'vllm', root: 'org/m' };

it('reads in the background, and again after a minute, or when the engine was away', async () => {
  const { reader, asked, clock, changed, answers } = await start({ answers: { '/version': { version: '1' } } });
  const first = changed();
  reader.refresh([VLLM]);
  reader.refresh([VLLM]);
  await first;
  expect(reader.of('m')).toEqual({ engine: 'vllm', engine_version: '1' });
  expect(asked).toEqual(['/version', '/metrics']);
  clock.now = 59_999;
  reader.refresh([VLLM]);
  expect(asked).toHaveLength(2);
  for (const version of ['2', '3']) {
    answers['/version'] = { version };
    if (version === '2') clock.now = 60_000;
    else reader.forget();
    const next = changed();
    reader.refresh([VLLM]);
    await next;
    expect(reader.of('m').engine_version).toBe(version);
  }
  const other = changed();
  reader.refresh([VLLM, { ...VLLM, id: 'n' }]);
  await other;
  expect(reader.of('n').engine).toBe('vllm');
});

it('keeps the context of a model that Ollama unloaded, until Ollama was away', async () => {
  const models = [{ name: 'm:latest', context_length: 4096 }];
  const { reader, clock, changed, answers } = await start({
    answers: { '/api/version': { version: '1' }, '/api/ps': { models }, '/api/show': {} },
  });
  const listed: ListedModel[] = [{ id: 'm', ownedBy: 'library' }];
  const next = async () => {
    const change = changed();
    reader.refresh(listed);
    await change;
    return reader.of('m');
  };
  expect(await next()).toMatchObject({ context_length: 4096 });
  answers['/api/ps'] = { models: [] };
  answers['/api/version'] = { version: '2' };
  clock.now = 60_000;
  expect(await next()).toMatchObject({ engine_version: '2', context_length: 4096 });
  reader.forget();
  expect(await next()).toEqual({ engine: 'ollama', engine_version: '2' });
});

it('asks an engine of an unknown kind once, and not each minute', async () => {
  const { reader, asked } = await start();
  const unknown: ListedModel = { id: 'm', ownedBy: 'library' };
  expect([...(await reader.read([unknown]))]).toEqual([['m', {}]]);
  await reader.read([unknown]);
  expect(asked).toEqual(['/api/version', '/info']);
  await reader.read([{ id: 'm' }]);
  expect(asked).toHaveLength(2);
});

it('keeps what it knows while the engine does not answer, and says so once', async () => {
  const { reader, clock, lines, changed, answers } = await start({ answers: { '/version': { version: '1' } } });
  const first = changed();
  reader.refresh([VLLM]);
  await first;
  answers['/version'] = null;
  for (const now of [60_000, 70_000, 80_000]) {
    clock.now = now;
    reader.refresh([VLLM]);
    await expect.poll(() => lines.length).toBe(1);
  }
  expect(reader.of('m').engine_version).toBe('1');
  expect(lines[0]).toMatch(/^cannot read facts about the engine's models yet: /);
});

it('sends the engine’s key, and passes no key of the engine on', async () => {
  const answers = { '/server_info': { version: '0.5.17', api_key: 'sk-engine', model_path: 'org/m' } };
  const { reader, seen, lines } = await start({ answers, key: 'sk-mine' });
  const facts = await reader.read([{ id: 'm', ownedBy: 'sglang' }]);
  for (const { headers } of seen) expect(headers.authorization).toBe('Bearer sk-mine');
  expect(JSON.stringify([...facts, lines])).not.toContain('sk-');
});

it('reads no file of this machine for an engine on another one', async () => {
  const folder = scratch();
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ quantization_config: { quant_method: 'fp8' } }));
  const model: ListedModel = { ...VLLM, root: folder };
  const here = await start({ answers: { '/version': {} } });
  expect((await here.reader.read([model])).get('m')).toMatchObject({ quantization: 'fp8' });
  // An address that the agent does not know as this machine's.
  const elsewhere = await start({ answers: { '/version': {} }, host: '[::ffff:127.0.0.1]' });
  expect((await elsewhere.reader.read([model])).get('m')).not.toHaveProperty('quantization');
});

it('reads the checkpoint of the command that it started', async () => {
  const folder = join(scratch(), 'm');
  mkdirSync(folder);
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ torch_dtype: 'bfloat16' }));
  const { reader } = await start({ command: ['vllm', 'serve', folder, '--max-num-seqs', '64'] });
  expect((await reader.read([VLLM])).get('m')).toMatchObject({ quantization: 'bfloat16', max_batch: 64 });
});

it('finds the models of transformers’ server in the hub’s cache, by their names', async () => {
  const cache = join(scratch(), 'hub');
  const snapshot = join(cache, 'models--org--m', 'snapshots', 'abc');
  mkdirSync(snapshot, { recursive: true });
  writeFileSync(join(snapshot, 'config.json'), JSON.stringify({ dtype: 'bfloat16', max_position_embeddings: 8192 }));
  const command = ['/venv/bin/python', '/venv/bin/transformers', 'serve', '--port', '8000'];
  // As transformers 5.19.0 lists them: owned by the organization.
  const listed: ListedModel[] = ['org/m', 'org/m@v2', 'org/other'].map((id) => ({ id, ownedBy: 'org' }));
  const { reader } = await start({ command, env: { HF_HUB_CACHE: cache } });
  const known = { engine: 'transformers', quantization: 'bfloat16', context_length: 8192 };
  expect(Object.fromEntries(await reader.read(listed))).toEqual({
    'org/m': known,
    'org/m@v2': known,
    'org/other': { engine: 'transformers' },
  });
  const cast = await start({ command: [...command, '--quantization', 'bnb-4bit'], env: { HF_HUB_CACHE: cache } });
  expect((await cast.reader.read(listed)).get('org/m')).not.toHaveProperty('quantization');
});

it('knows what the engine says while its file system hangs, and the rest when that has answered', async () => {
  let answer: (facts: { quantization: string }) => void = () => {};
  const { reader } = await start({
    ...{ answers: { '/version': { version: '1' } }, filesMs: 1 },
    readCheckpoint: () =>
      new Promise((resolve) => {
        answer = resolve;
      }),
  });
  expect((await reader.read([VLLM])).get('m')).toEqual({ engine: 'vllm', engine_version: '1' });
  answer({ quantization: 'fp8' });
  expect((await reader.read([VLLM])).get('m')).toMatchObject({ quantization: 'fp8' });
});

it.each([
  ['no answer', {}],
  ['garbage', { '/api/version': '{"version": "1"}', '/api/ps': '<html>', '/api/show': '[[[' }],
  ['5 MiB', { '/info': 'x'.repeat(5 * 1024 * 1024) }],
  ['deep brackets', { '/info': '['.repeat(1_000_000) }],
  ['null', { '/api/version': 'null', '/info': 'null' }],
])('reads no fact but the kind from an engine with %s', async (_what, answers) => {
  const { reader } = await start({ answers });
  for (const facts of (await reader.read([{ id: 'm', ownedBy: 'library' }])).values())
    expect(Object.keys(facts).filter((name) => !name.startsWith('engine'))).toEqual([]);
});
