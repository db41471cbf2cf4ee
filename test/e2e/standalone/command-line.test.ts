/** Rules for every command of `otela-gateway`: help, exit codes, one object per line, colors. */
import { execFile, spawnSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { GATEWAY_PROGRAM } from '../../../gateway/cli/commands.ts';
import { checkText } from '../../../shared/terminal/check-result.ts';
import { colorPaint, painterFor, plainPaint } from '../../../shared/terminal/paint.ts';
import { Gateway } from '../../support/gateway.ts';
import { patience } from '../../support/patience.ts';
import { atEnd, endAll, freePort, temporaryDirectory } from '../../support/processes.ts';
import { GATEWAY_MAIN, NODE } from '../../support/where.ts';

const COMMANDS = GATEWAY_PROGRAM.commands;
const cli = (...args: string[]) =>
  spawnSync(NODE, [GATEWAY_MAIN, ...args], { encoding: 'utf8', timeout: patience(30_000) });

let gateway: Gateway;
let door: string[];
beforeAll(async () => {
  gateway = await Gateway.start();
  door = ['--url', gateway.url, '--key-file', join(gateway.data, 'admin.key')];
});
afterAll(endAll);

it('every word in the examples is a command, a verb and a flag that there is', () => {
  for (const command of Object.values(COMMANDS)) {
    const lines = command.examples
      .split('\n')
      .flatMap((line) => /(?:^ {2}\(?|; |&& )otela-gateway ([a-z]+.*)$/.exec(line)?.[1] ?? []);
    // The right-hand column is a description.
    for (const line of lines.map((one) => one.split(/ {3,}/)[0] ?? '')) {
      const [example = '', verb = ''] = line.split(/\s+/);
      expect(Object.keys(COMMANDS)).toContain(example);
      const { verbs, flags } = COMMANDS[example] ?? command;
      if (verbs !== undefined && /^[a-z]+$/.test(verb)) expect(verbs).toContain(verb);
      for (const [, flag = ''] of line.matchAll(/ --([a-z-]+)/g)) expect(Object.keys(flags)).toContain(flag);
    }
  }
});

it('--help wins over everything else on the line, and ends with 0', () => {
  const { status, stdout, stderr } = cli('keys', 'create', '--nonsense', '--help');
  expect([status, stderr]).toEqual([0, '']);
  expect(stdout).toContain('otela-gateway keys create');
  expect(cli('help', 'restore').stdout).toContain('otela-gateway restore');
  expect(cli('help').stdout).toContain('otela-gateway COMMAND --help');
});

it.each([
  [['kyes', 'list'], 2, /did you mean keys/],
  [[], 2, /a command is missing/],
  [['nodes', 'list', '--stat', 'x'], 2, /--stat[\s\S]*otela-gateway nodes --help/],
  [['nodes', 'explode', 'x'], 2, /usage/],
  [['peers', 'add', 'x'], 2, /usage/],
  [['backup', '--data', '.'], 2, /--out/],
  [['restore'], 2, /usage/],
  [['backup', '--data', '/nonexistent', '--out', '/tmp/x'], 1, /no data of a gateway/],
  [['restore', '--data', '/dev/null/data', '/nonexistent.tar.gz'], 1, /\/dev\/null/],
  [['keys', 'list', '--key-file', '/nonexistent'], 1, /cannot read/],
  [['keys', 'list', '--project', 'proj_1'], 2, /keys list takes no --project/],
  [['keys', 'create', '--name', 'a', '--expires', '45'], 2, /--expires must be a date/],
  [['keys', 'create', '--name', 'a', '--expires', '999999d'.repeat(2)], 2, /--expires must be a date/],
  [['keys', 'list', '--url', 'gw.example.org'], 2, /is not a URL such as https/],
  [['help', 'constructor'], 2, /unknown command "constructor"/],
])('%j ends with %i and says why, without a stack', (args, code, reason) => {
  const { status, stderr } = cli(...args);
  expect([status, stderr]).toEqual([code, expect.stringMatching(reason)]);
  expect(stderr).not.toMatch(/\n {4}at /);
});

it('where no gateway answers the code is 69, so that a script can wait', async () => {
  const url = `http://127.0.0.1:${await freePort()}`;
  const { status, stderr } = cli('keys', 'list', '--url', url, '--key-file', join(gateway.data, 'admin.key'));
  expect([status, stderr]).toEqual([69, expect.stringContaining('no gateway answers')]);
});

it('a file that holds no key for a header is refused, and nothing of it is told', async () => {
  const file = join(await temporaryDirectory(), 'keys');
  await writeFile(file, 'sk-otela-of-ada\nsk-otela-of-bob\n');
  const { status, stderr } = cli('keys', 'list', '--url', gateway.url, '--key-file', file);
  expect([status, stderr]).toEqual([1, expect.stringContaining('must contain exactly one key')]);
  expect(stderr).not.toContain('sk-otela');
});

it('a reader that has seen enough ends what is only printed: no stack, no error, no more questions', async () => {
  let pages = 0;
  const line = { at: '2026-11-22T00:00:00Z', actor: 'key_1', action: 'key.create', target: 'key_2' };
  const server = createServer((request, response) => {
    pages++;
    if (request.url?.startsWith('/admin/trace')) return void Readable.from(endless()).pipe(response);
    const data = Array.from({ length: 100 }, (_, n) => ({ id: 1e6 - 100 * pages - n, ...line }));
    response.end(JSON.stringify({ data, has_more: true }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => void server.close().closeAllConnections());
  const address = server.address();
  const url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
  const [from, to] = ['2026-11-01T00:00:00Z', '2026-11-02T00:00:00Z'];
  for (const args of [['audit'], ['trace', 'export', '--from', from, '--to', to]]) {
    const command = [NODE, GATEWAY_MAIN, ...args, '--url', url, '--key-file', join(gateway.data, 'admin.key')];
    const seen = await new Promise<[number | string | undefined, string, string]>((resolve) => {
      const script = `set -o pipefail; ${command.join(' ')} | head -n 1`;
      execFile('bash', ['-c', script], (error, out, err) => resolve([error?.code ?? 0, out, err]));
    });
    expect(seen).toEqual([0, expect.stringMatching(/^.+\n$/), '']);
  }
  expect(pages).toBeLessThan(50);
});

async function* endless() {
  for (;;) yield `${'{"model":"m"}'.repeat(100)}\n`;
}

it('a rollout stops at the cohort that stays away, and touches no other', async () => {
  const nodes = ['a', 'b', 'c', 'd'].map((letter) => ({
    session: letter.repeat(26),
    provider: 'p',
    cluster: 'c',
    state: 'SERVING',
    suspected: false,
    agent_version: '0.1.0',
    models: [{ id: 'm', state: 'ready' }],
  }));
  const restarted: string[] = [];
  const server = createServer(({ method, url = '' }, response) => {
    const [, session] = /^\/admin\/nodes\/(\w+)\/restart/.exec(url) ?? [];
    if (method === 'POST' && session !== undefined) {
      restarted.push(session);
      response.end(JSON.stringify({ from: '0.1.0', running: 0 }));
    } else {
      // A restarted session has left, and is not listed again.
      const data = nodes.filter((node) => !restarted.includes(node.session));
      response.end(JSON.stringify({ data, has_more: false }));
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => void server.close().closeAllConnections());
  const address = server.address();
  const url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
  const key = ['--key-file', join(gateway.data, 'admin.key')];
  const rollout = ['rollout', 'start', '--to', '0.2.0', '--cohort', '50%', '--within', '1s', '--url', url, ...key];
  const [code, stderr] = await new Promise<[unknown, string]>((resolve) => {
    execFile(NODE, [GATEWAY_MAIN, ...rollout], (error, _, text) => resolve([error?.code ?? 0, text]));
  });
  expect([code, stderr]).toEqual([1, expect.stringContaining('of 2 restarted nodes, 0 are back and 0 of them serve')]);
  expect(restarted).toHaveLength(2);
});

it('with --json every line of stdout is one JSON value', async () => {
  const out = join(await temporaryDirectory(), 'backup.tar.gz');
  const commands = [
    ['keys', 'create', '--name', 'ada', ...door],
    ['keys', 'list', ...door],
    ['tokens', 'create', '--provider', 'eth', ...door],
    ['providers', 'list', ...door],
    ['settings', ...door],
    ['audit', ...door],
    ['usage', ...door],
    ['backup', '--data', gateway.data, '--out', out],
    ['issuer', 'show', '--data', gateway.data],
    ['version'],
  ];
  for (const command of commands) {
    const { status, stdout } = cli(...command, '--json');
    expect([command, status]).toEqual([command, 0]);
    for (const line of stdout
      .trim()
      .split('\n')
      .filter((one) => one !== ''))
      expect(() => JSON.parse(line)).not.toThrow();
  }
});

it('colors stand on a terminal alone, and not where they are refused', () => {
  expect(painterFor({ isTTY: true }, {})).toBe(colorPaint);
  expect(painterFor({ isTTY: true }, { NO_COLOR: '1' })).toBe(plainPaint);
  expect(painterFor({ isTTY: true }, { TERM: 'dumb' })).toBe(plainPaint);
  expect(painterFor({ isTTY: false }, {})).toBe(plainPaint);
  const finding = { what: 'disk', verdict: 'bad', found: 'full', fix: 'make room' } as const;
  expect(checkText(finding, plainPaint)).toBe('BAD  disk: full\n       → make room');
  expect(checkText(finding, colorPaint)).toContain('\u001b[31mBAD');
  // Output to a pipe, as of spawnSync, has no colors.
  expect(cli('doctor', '--data', gateway.data, '--port', '0').stdout).not.toContain('\u001b');
});

it('what a provider’s agent says of itself does not drive the terminal', async () => {
  const evil = '\u001b[2J\u009b31mall is well\r\n\u202e';
  const node = { session: 's', state: 'SERVING', suspected: false, provider: evil, cluster: evil, in_flight: 0 };
  const event = { id: 1, at: '2026-11-22', session: 's', node: evil, provider: 'p', cluster: 'c', event: 'left' };
  const answers: Record<string, unknown> = {
    '/admin/nodes': { data: [{ ...node, load: null, breaker: { state: 'closed' }, models: [{ id: evil }] }] },
    '/admin/nodes/history': { data: [{ ...event, reason: evil }] },
    '/admin/nodes/s': { ...node, host: evil },
  };
  const server = createServer(({ url = '' }, response) => {
    const answer = answers[url.split('?')[0] ?? ''];
    response.statusCode = answer === undefined ? 404 : 200;
    response.end(JSON.stringify(answer === undefined ? { error: { message: evil } } : { has_more: false, ...answer }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => void server.close().closeAllConnections());
  const address = server.address();
  const url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
  for (const [lines, ...args] of [
    [2, 'list'],
    [2, 'history'],
    [10, 'show', 's'],
    [1, 'drain', 'other'],
  ] as const) {
    const said = await new Promise<string>((resolve) => {
      const command = [GATEWAY_MAIN, 'nodes', ...args, '--url', url, '--key-file', join(gateway.data, 'admin.key')];
      execFile(NODE, command, (_, stdout, stderr) => resolve(stdout + stderr));
    });
    expect(said).toContain('all is well');
    expect(said.replaceAll('\n', '')).toMatch(/^[^\p{Cc}\u202e]*$/u);
    expect([args, said.trimEnd().split('\n').length]).toEqual([args, lines]);
  }
});
