/** The agent as a service: what it writes, and what it asks systemd for. */
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { main } from '../../../agent/cli/main.ts';
import { serviceUnit } from '../../../agent/update/service-unit.ts';

let home: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'otela-service-'));
  tool('systemctl', 'exit 0');
  tool('loginctl', 'exit 0');
});
afterEach(() => rmSync(home, { recursive: true }));

/** A command that writes its arguments to `calls`. */
function tool(name: string, then: string): void {
  writeFileSync(join(home, name), `#!/bin/sh\necho ${name} "$@" >> ${home}/calls\n${then}\n`);
  chmodSync(join(home, name), 0o755);
}

async function service(...args: string[]) {
  let text = '';
  const sink = () =>
    new Writable({
      write(chunk, _encoding, done) {
        text += String(chunk);
        done();
      },
    });
  const env = { PATH: `${home}:/usr/bin:/bin`, HOME: home };
  const code = await main(['service', ...args], env, { stdout: sink(), stderr: sink() });
  return { code, text };
}
const unit = () => join(home, '.config/systemd/user/otela-agent.service');
const calls = () => readFileSync(join(home, 'calls'), 'utf8').trim().split('\n');

it('is installed for the user, started, kept after logout, and removed again', async () => {
  expect(await service('install', '--', 'vllm', 'serve', 'Qwen/Qwen3-8B')).toMatchObject({ code: 0 });
  expect(readFileSync(unit(), 'utf8')).toContain(' start -- vllm serve Qwen/Qwen3-8B\n');
  expect(calls()).toEqual([
    'systemctl --user daemon-reload',
    'systemctl --user enable otela-agent.service',
    'systemctl --user restart otela-agent.service',
    'loginctl enable-linger',
  ]);
  expect(await service('uninstall')).toMatchObject({ code: 0 });
  expect(existsSync(unit())).toBe(false);
});

it('says what the machine does not allow', async () => {
  tool('loginctl', 'echo no permission >&2; exit 1');
  const lingering = await service('install');
  expect([lingering.code, lingering.text]).toEqual([0, expect.stringContaining('ends when you log out')]);
  tool('systemctl', 'echo Failed to connect to bus >&2; exit 1');
  const failed = await service('install');
  expect([failed.code, failed.text]).toEqual([70, expect.stringContaining('Failed to connect to bus')]);
  expect((await service('start')).code).toBe(2);
});

it('quotes each word, so that systemd changes none', () => {
  const text = serviceUnit({
    command: ['/x/otela-agent', 'a b', '$HOME', '50%', '"'],
    user: false,
    path: '/bin',
    home: '/root',
  });
  expect(text).toContain('ExecStart=/x/otela-agent "a b" "$$HOME" "50%%" "\\""\n');
  expect(text).toContain('WantedBy=multi-user.target');
});
