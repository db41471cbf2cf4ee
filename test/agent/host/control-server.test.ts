/**
 * What a program of the same user may send to the control socket: nothing ends the agent, and only valid requests are
 * carried out.
 */
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type ControlHandlers, ControlServer } from '../../../agent/host/control-server.ts';
import { CONTROL_SOCKET } from '../../../agent/host/state-directory.ts';

const done: string[] = [];
const handlers: ControlHandlers = {
  status: () => JSON.parse('{"session":"s"}'),
  network: () => [],
  metrics: () => 'otela_up 1\n',
  weights: {
    report: () => Promise.resolve({ directory: '/w', used: 0, limit: 0, held: [], elsewhere: [] }),
    pull: (source) => {
      done.push(`pull ${source}`);
      return Promise.reject(new Error('no such source'));
    },
    collect: () => Promise.resolve(0),
  },
  drain: () => void done.push('drain'),
  tail: () => Buffer.from('tail'),
  follow: () => () => {},
};

let directory = '';
let server: ControlServer;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'otela-control-'));
  server = new ControlServer(directory, handlers);
  await server.open();
});
afterAll(async () => {
  server.close();
  await rm(directory, { recursive: true });
});

/** The whole response until the end. `half`: the client does not end its side. */
function say(bytes: string | Buffer, half = false): Promise<string> {
  return new Promise((resolve) => {
    let answer = '';
    const socket = connect(
      join(directory, CONTROL_SOCKET),
      () => void (half ? socket.write(bytes) : socket.end(bytes)),
    );
    socket.setEncoding('utf8');
    socket.on('data', (text: string) => {
      answer += text;
    });
    socket.on('error', () => {});
    socket.on('close', () => resolve(answer));
  });
}
const works = async () => expect(JSON.parse(await say('{"op":"metrics"}\n', true))).toMatchObject({ ok: true });

it.each<[string, string | Buffer]>([
  ['no JSON', 'status\n'],
  ['an empty line', '\n'],
  ['a list', '["drain"]\n'],
  ['an unknown word', '{"op":"exec","command":"id"}\n'],
  ['a word of JavaScript’s own', '{"op":"__proto__"}\n'],
  ['its request in its prototype', '{"__proto__":{"op":"drain"}}\n'],
  ['no word', '{}\n'],
  ['two words', '{"op":["drain"]}\n'],
  ['a pull of nothing', '{"op":"pull"}\n'],
  ['a pull of a list', '{"op":"pull","source":["hub:a/b"]}\n'],
  ['a source that is too long', `{"op":"pull","source":"${'x'.repeat(2_000)}"}\n`],
  ['logs that are followed by a text', '{"op":"logs","follow":"yes"}\n'],
  ['deep JSON', `${'['.repeat(4_000)}\n`],
  ['a line above 4 KiB', `{"op":"drain","x":"${'x'.repeat(8_192)}"}\n`],
  ['a line without an end', 'x'.repeat(100_000)],
  ['bytes that are no text', Buffer.from([0xff, 0xfe, 0x00, 0x0a])],
  ['HTTP', 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'],
])('%s is refused, and nothing is done', async (_, bytes) => {
  expect(await say(bytes, true)).toMatch(/^\{"ok":false,"error":"[^\n]*\n$/);
  expect(done).toEqual([]);
  await works();
});

it('a caller that says nothing, or goes in the middle of its line, takes nothing from others', async () => {
  const silent = Array.from({ length: 8 }, () => connect(join(directory, CONTROL_SOCKET)));
  await works();
  for (const socket of silent) socket.destroy();
  expect(await say('{"op":"dr')).toBe('');
  await works();
  expect(done).toEqual([]);
});

it('of two lines the first is the request', async () => {
  const answer = await say('{"op":"metrics"}\n{"op":"drain"}\n', true);
  expect(JSON.parse(answer)).toMatchObject({ ok: true, metrics: 'otela_up 1\n' });
  expect(done).toEqual([]);
});

it('a pull that fails is told, and the socket is its owner’s alone', async () => {
  expect(await say('{"op":"pull","source":"dir:/nowhere"}\n', true)).toBe('{"ok":false,"error":"no such source"}\n');
  expect(done.splice(0)).toEqual(['pull dir:/nowhere']);
  expect((await stat(join(directory, CONTROL_SOCKET))).mode & 0o777).toBe(0o600);
});
