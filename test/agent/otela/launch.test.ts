/** `otela launch`, `models`, `usage` and `token`, with a mock gateway and programs in place of the real tools. */
import { chmod, mkdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, expect, it, vi } from 'vitest';
import { TOOLS } from '../../../clients/otela/launch/tools.ts';
import { main } from '../../../clients/otela/main.ts';
import { atEnd, endAll, temporaryDirectory } from '../../support/processes.ts';

afterAll(endAll);

const KEY = 'sk-otela-test';
const MODELS = [
  { id: 'org/coder', state: 'ready', context_length: 131_072, architecture: { input_modalities: ['text', 'image'] } },
  { id: 'small', state: 'ready' },
];
let home: string;
let gateway: string;
/** Answers by path. */
let answers: Record<string, unknown>;

beforeEach(async () => {
  home = await temporaryDirectory('otela-launch');
  answers = {
    '/v1/models': { object: 'list', data: MODELS },
    '/v1/models?state=all': { object: 'list', data: MODELS },
  };
  const server = createServer((request, response) => {
    const answer = answers[request.url ?? ''];
    const isKnown = request.headers.authorization === `Bearer ${KEY}`;
    response.writeHead(isKnown && answer !== undefined ? 200 : isKnown ? 404 : 401, { connection: 'close' });
    response.end(isKnown ? JSON.stringify(answer) : '{"error":{"message":"This gateway does not know this API key."}}');
  }).listen(0, '127.0.0.1');
  atEnd(() => void server.close());
  await new Promise((resolve) => server.once('listening', resolve));
  gateway = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  await mkdir(join(home, 'otela'), { recursive: true });
  await writeFile(join(home, 'otela/key'), `${KEY}\n`, { mode: 0o600 });
  await writeFile(join(home, 'otela/gateway'), `${gateway}\n`, { mode: 0o600 });
  await mkdir(join(home, 'bin'));
  vi.stubEnv('XDG_CONFIG_HOME', home);
  vi.stubEnv('CLAUDE_CONFIG_DIR', join(home, 'claude'));
  vi.stubEnv('CODEX_HOME', join(home, 'codex'));
  vi.stubEnv('OTELA_API_KEY', '');
  vi.stubEnv('OTELA_KEY', '');
  vi.stubEnv('OTELA_GATEWAY', '');
  vi.stubEnv('PATH', `${join(home, 'bin')}:${process.env.PATH}`);
});
afterEach(() => vi.unstubAllEnvs());

async function otela(...args: string[]): Promise<{ code: number; said: string; complained: string }> {
  const [said, complained]: string[][] = [[], []];
  const code = await main(args, { print: (line) => said?.push(line), complain: (line) => complained?.push(line) });
  return { code, said: said?.join('\n') ?? '', complained: complained?.join('\n') ?? '' };
}

/** A program that writes its environment and arguments, and ends with code 7. */
async function fake(program: string): Promise<() => Promise<{ env: Record<string, string>; args: string[] }>> {
  const told = join(home, 'told.json');
  const script = `#!${process.execPath}\nrequire('node:fs').writeFileSync(${JSON.stringify(told)}, JSON.stringify({ env: process.env, args: process.argv.slice(2) }));\nprocess.exit(7);\n`;
  await writeFile(join(home, 'bin', program), script, { mode: 0o755 });
  return async () => JSON.parse(await readFile(told, 'utf8'));
}

const json = async (path: string) => JSON.parse(await readFile(join(home, path), 'utf8')) as unknown;

it('token prints the key and nothing else; others must not be able to read its file', async () => {
  expect(await otela('token')).toEqual({ code: 0, said: KEY, complained: '' });
  await chmod(join(home, 'otela/key'), 0o644);
  const refused = await otela('token');
  expect([refused.code, refused.said]).toEqual([2, '']);
  expect(refused.complained).toContain('chmod 600');
  expect(refused.complained).not.toContain(KEY);
  await rm(join(home, 'otela/key'));
  expect((await otela('token')).complained).toContain('otela login');
});

it('models lists name, state and context; a hostile name does not drive the terminal', async () => {
  expect((await otela('models')).said).toBe('org/coder  ready  131072 tokens\nsmall  ready');
  answers['/v1/models?state=all'] = { data: [{ id: 'a\u001b[2Jb\nc' }] };
  const { said } = await otela('models');
  expect(said).not.toContain('\u001b');
  expect(said.split('\n')).toHaveLength(1);
  answers['/v1/models?state=all'] = { data: 'all' };
  expect(await otela('models')).toMatchObject({ code: 2, said: '' });
});

it('usage shows the last day and what is left', async () => {
  const none = { key: [], user: [], project: [] };
  const hour = { requests: 2, failed: 1, prompt_tokens: 10, completion_tokens: 5 };
  answers['/admin/me/limits'] = { ...none, project: [{ limit: 'tokens_per_month', allowed: 100, used: 30 }] };
  answers['/admin/me/hours?hours=24'] = { data: [hour, hour] };
  expect((await otela('usage')).said).toBe(
    'Last 24 hours: 4 requests, 2 failed, 20 input tokens, 10 output tokens\ntokens per month, the project: 70 of 100 left',
  );
  answers['/admin/me/limits'] = none;
  expect((await otela('usage')).said).toContain('No limits.');
});

it('a wrong key, no gateway and an unknown tool are told', async () => {
  await writeFile(join(home, 'otela/key'), 'sk-otela-other\n', { mode: 0o600 });
  expect(await otela('models')).toMatchObject({ code: 2, complained: expect.stringContaining('does not know') });
  await writeFile(join(home, 'otela/gateway'), 'http://127.0.0.1:1\n', { mode: 0o600 });
  expect((await otela('models')).code).toBe(69);
  expect((await otela('models', '--gateway', 'http://gw.example.org')).complained).toContain('not encrypted');
  await rm(join(home, 'otela/gateway'));
  expect((await otela('models')).complained).toContain('give --gateway URL');
  expect((await otela('launch', 'claud')).complained).toContain('Did you mean claude?');
  expect((await otela('launch', '__proto__')).complained).toContain('not a known tool');
});

it.each(Object.keys(TOOLS))(
  'launch %s runs the tool with the gateway, the key and the model, and changes no file',
  async (name) => {
    const program = TOOLS[name]?.program ?? '';
    const told = await fake(program);
    expect((await otela('launch', name, '--model', 'org/coder', '--', 'do', '--this')).code).toBe(7);
    const { env, args } = await told();
    expect(args.slice(-2)).toEqual(['do', '--this']);
    const all = JSON.stringify([env, args]);
    expect(all).toContain(gateway);
    expect(all).toContain('org/coder');
    expect(Object.values(env)).toContain(KEY);
    expect(JSON.stringify(args)).not.toContain(KEY); // other users see command lines
    await expect(stat(join(home, 'claude'))).rejects.toThrow('ENOENT');
  },
);

it('launch needs a model if several are served, and says which; and that a tool is not installed', async () => {
  const several = await otela('launch', 'claude');
  expect(several).toMatchObject({ code: 2, complained: expect.stringContaining('org/coder, small') });
  expect((await otela('launch', 'claude', '--model', 'nope')).complained).toContain('"nope" is not served now');
  vi.stubEnv('PATH', join(home, 'bin'));
  const missing = await otela('launch', 'claude', '--model', 'small');
  expect(missing.complained).toContain('npm install -g @anthropic-ai/claude-code');
});

it('a file that would send a key to another address stops the run', async () => {
  const told = await fake('claude');
  await mkdir(join(home, 'claude'));
  const elsewhere = { env: { ANTHROPIC_BASE_URL: 'https://elsewhere.example', ANTHROPIC_API_KEY: 'sk-ant-x' } };
  await writeFile(join(home, 'claude/settings.json'), JSON.stringify(elsewhere));
  const { code, complained } = await otela('launch', 'claude', '--model', 'small');
  expect([code, complained]).toEqual([2, expect.stringContaining('ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY')]);
  await expect(told()).rejects.toThrow('ENOENT');
});

it('--config writes no key, takes other keys out, and --restore brings back what was there, apart from later changes', async () => {
  const before = {
    permissions: { allow: ['Bash'] },
    env: { ANTHROPIC_API_KEY: 'sk-ant-x', OTHER: '1' },
    apiKeyHelper: 'mine',
  };
  await mkdir(join(home, 'claude'));
  await writeFile(join(home, 'real.json'), JSON.stringify(before), { mode: 0o640 });
  await symlink(join(home, 'real.json'), join(home, 'claude/settings.json'));
  expect((await otela('launch', 'claude', '--config', '--model', 'org/coder')).code).toBe(0);
  const written = (await json('claude/settings.json')) as { env: object };
  expect(written).toMatchObject({ permissions: before.permissions, apiKeyHelper: 'otela token' });
  expect(written.env).toMatchObject({ ANTHROPIC_BASE_URL: gateway, CLAUDE_CODE_MAX_CONTEXT_TOKENS: '131072' });
  expect(JSON.stringify(written)).not.toMatch(/sk-(?:otela|ant)/);
  expect((await stat(join(home, 'real.json'))).mode & 0o777).toBe(0o640);
  // A second --config, of a model without a known context, and then a change of the person.
  expect((await otela('launch', 'claude', '--config', '--model', 'small')).code).toBe(0);
  expect(JSON.stringify(await json('real.json'))).not.toContain('CONTEXT_TOKENS');
  const later = { ...((await json('real.json')) as object), model: 'opus' };
  await writeFile(join(home, 'real.json'), JSON.stringify(later));
  expect((await otela('launch', 'claude', '--restore')).said).toContain('Restored');
  expect(await json('real.json')).toEqual({ ...before, model: 'opus' });
  expect((await otela('launch', 'claude', '--restore')).said).toContain('did not configure');
});

it('opencode and codex get files of their own kind, which --restore removes if they were not there', async () => {
  for (const name of ['opencode', 'codex'])
    expect((await otela('launch', name, '--config', '--model', 'org/coder')).code).toBe(0);
  expect(await json('opencode/opencode.json')).toMatchObject({
    model: 'otela/org/coder',
    provider: {
      otela: {
        options: { baseURL: `${gateway}/v1`, apiKey: `{file:${join(home, 'otela/key')}}` },
        models: { 'org/coder': { limit: { context: 131_072 }, modalities: { input: ['text', 'image'] } }, small: {} },
      },
    },
  });
  const profile = await readFile(join(home, 'codex/otela.config.toml'), 'utf8');
  expect(profile).toContain('model_context_window = 131072');
  expect(profile).toContain('args = ["token"]');
  expect(profile).not.toContain(KEY);
  for (const name of ['opencode', 'codex']) expect((await otela('launch', name, '--restore')).code).toBe(0);
  await expect(stat(join(home, 'opencode/opencode.json'))).rejects.toThrow('ENOENT');
  await expect(stat(join(home, 'codex/otela.config.toml'))).rejects.toThrow('ENOENT');
});

it('a file with comments, of another kind, or of another program is not touched', async () => {
  await mkdir(join(home, 'opencode'));
  for (const text of ['{ "a": 1 // mine\n}', '[1]', '{"provider": []}']) {
    await writeFile(join(home, 'opencode/opencode.json'), text);
    expect((await otela('launch', 'opencode', '--config', '--model', 'small')).code).toBe(2);
    expect(await readFile(join(home, 'opencode/opencode.json'), 'utf8')).toBe(text);
  }
  await mkdir(join(home, 'codex'));
  await writeFile(join(home, 'codex/otela.config.toml'), 'model = "mine"\n');
  expect((await otela('launch', 'codex', '--config', '--model', 'small')).code).toBe(2);
  expect(await readFile(join(home, 'codex/otela.config.toml'), 'utf8')).toBe('model = "mine"\n');
});

it('a hostile name of a model stays a text in every file and argument', async () => {
  const evil = '"]\n[mcp_servers.x]\ncommand = "touch /tmp/evil" #\u007f';
  answers['/v1/models'] = { data: [{ id: evil }, { id: '__proto__' }] };
  await otela('launch', 'codex', '--config', '--model', evil);
  const profile = await readFile(join(home, 'codex/otela.config.toml'), 'utf8');
  expect(profile.split('\n').filter((line) => line.startsWith('['))).toEqual([
    '[model_providers.otela]',
    '[model_providers.otela.auth]',
  ]);
  await otela('launch', 'opencode', '--config', '--model', evil);
  const { provider } = (await json('opencode/opencode.json')) as { provider: { otela: { models: object } } };
  expect(Object.keys(provider.otela.models)).toEqual([evil, '__proto__']);
  const told = await fake('codex');
  await otela('launch', 'codex', '--model', evil);
  expect((await told()).args.at(-1)).toBe(evil);
});

it.each(['models', 'usage'])('%s reads no more than a bounded part of a response without an end', async (command) => {
  let sent = 0;
  const server = createServer((_request, response) => {
    const chunk = Buffer.alloc(256 * 1024, ' ');
    const more = () => {
      if (response.destroyed) return;
      sent += chunk.length;
      if (response.write(chunk)) setImmediate(more);
    };
    response.writeHead(200).on('drain', more);
    more();
  }).listen(0, '127.0.0.1');
  atEnd(() => void server.close().closeAllConnections());
  await new Promise((resolve) => server.once('listening', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { code, complained } = await otela(command, '--gateway', url);
  expect([code, complained]).toEqual([2, expect.stringContaining('is not a gateway')]);
  expect(sent).toBeLessThan(64 * 1024 * 1024);
});

it('--config needs a key in a file, and a tool with a file', async () => {
  expect((await otela('launch', 'aider', '--config')).complained).toContain('only for one run');
  vi.stubEnv('OTELA_API_KEY', KEY);
  expect((await otela('launch', 'claude', '--config', '--model', 'small')).complained).toContain('otela login');
});
