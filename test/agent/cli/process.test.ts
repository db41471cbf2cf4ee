/** The agent as a separate process, with the real tunnel dialing a gateway that does not exist. */
import { chmodSync, mkdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, onTestFinished } from 'vitest';
import { signalGroup } from '../../../agent/engine/process-group.ts';
import { endAll, eventually, freePort, Managed } from '../../support/processes.ts';
import { AGENT_MAIN } from '../../support/where.ts';
import { engineCommand, NODE, processRuns, runToEnd, scratch, userEnv } from '../support/harness.ts';

afterEach(endAll);

const GATEWAY = { OTELA_GATEWAY: 'http://127.0.0.1:1', OTELA_TOKEN: 't' };
const WITH_WORKER = `const w = require('node:child_process').spawn(process.execPath, ['-e', 'setInterval(() => {}, 1e6)'], { stdio: 'ignore' });
console.log('engine', process.pid, 'worker', w.pid); setInterval(() => {}, 1e6)`;

function agent(directory: string, args: string[], more: Record<string, string> = {}, uid?: number) {
  const env = { ...userEnv(directory), ...GATEWAY, ...more };
  return new Managed([NODE, AGENT_MAIN, 'start', ...args], {
    label: 'agent',
    env,
    ...(uid === undefined ? {} : { uid }),
  });
}

describe('an agent process', () => {
  it('that is killed with SIGKILL takes the engine and its workers with it', async () => {
    const run = agent(scratch(), ['--engine-port', '9', '--', NODE, '-e', WITH_WORKER]);
    const [, engine, worker] = await run.line(/engine (\d+) worker (\d+)/, 10_000);
    // The engine's group is named after its first process. If this test fails, only this ends the group, because the
    // agent is gone.
    onTestFinished(() => signalGroup(Number(engine), 'SIGKILL'));
    run.signal('SIGKILL');
    await run.end(5000);
    await eventually('the engine has ended', 5000, () => !processRuns(Number(engine)) || undefined);
    await eventually('its worker has ended', 5000, () => !processRuns(Number(worker)) || undefined);
  });

  it.each(['SIGTERM', 'SIGUSR1', 'SIGHUP', 'SIGINT'] as const)(
    'ends with 143 on %s and leaves no process',
    async (signal) => {
      const run = agent(scratch(), ['--engine-port', '9', '--', NODE, '-e', WITH_WORKER]);
      const [, engine, worker] = await run.line(/engine (\d+) worker (\d+)/, 10_000);
      await run.line(/again in/, 10_000);
      run.signal(signal);
      expect(await run.end(10_000)).toEqual({ code: 143, signal: null });
      expect(processRuns(Number(engine))).toBe(false);
      expect(processRuns(Number(worker))).toBe(false);
    },
  );

  it('hears a signal that comes before its engine has been started', async () => {
    const run = agent(scratch(), ['--', ...engineCommand(await freePort())]);
    await run.line(/state in /, 10_000);
    run.signal('SIGTERM');
    expect(await run.end(10_000)).toEqual({ code: 143, signal: null });
  });

  it('gives all of the output to a reader that is slower than a pipe is long', async () => {
    const directory = scratch();
    const body = 'process.stdout.write("x".repeat(250_000), () => console.error("all")); setInterval(() => {}, 1e6)';
    const run = agent(directory, ['--engine-port', '9', '--', NODE, '-e', body]);
    await run.line(/all/, 10_000);
    const command = `"${NODE}" "${AGENT_MAIN}" logs | { head -c 1 > /dev/null; sleep 1; wc -c; }`;
    const reader = new Managed(['bash', '-c', command], { label: 'reader', env: userEnv(directory) });
    const [, bytes] = await reader.line(/(\d+)/, 10_000);
    expect(Number(bytes)).toBe(250_000 + 'all\n'.length - 1);
  });

  it('lives on when the reader of its output goes', async () => {
    const directory = scratch();
    const noisy = 'setInterval(() => console.log("noise"), 20); setTimeout(() => process.exit(7), 1500)';
    const command = `"${NODE}" "${AGENT_MAIN}" start --engine-port 9 -- "${NODE}" -e '${noisy}' 2>"${directory}/log" | head -c 10; sleep 2; cat "${directory}/log"`;
    const run = new Managed(['sh', '-c', command], { env: { ...userEnv(directory), ...GATEWAY } });
    await run.end(10_000);
    expect(run.output).toContain('the engine ended with code 7');
  });

  it('works as an ordinary user without a home', async ({ skip }) => {
    skip(process.getuid?.() !== 0, 'needs root to become another user');
    const directory = scratch();
    chmodSync(directory, 0o755);
    const tmp = join(directory, 'tmp');
    mkdirSync(tmp);
    chmodSync(tmp, 0o1777);
    const home = join(directory, 'home');
    mkdirSync(home, { mode: 0o555 });
    const port = await freePort();
    const more = { HOME: home, TMPDIR: tmp, XDG_RUNTIME_DIR: '/run/user/65534' };
    const run = agent(directory, ['--', ...engineCommand(port)], more, 65_534);
    await run.line(/stand-in engine ready/, 10_000);
    const status = new Managed([NODE, AGENT_MAIN, 'status', '--json'], {
      uid: 65_534,
      env: { ...userEnv(directory), ...more },
    });
    expect(await status.end(10_000)).toEqual({ code: 0, signal: null });
    expect(status.output).toContain(`"url": "http://127.0.0.1:${port}"`);
    // Other users, even root, do not see another user's agents.
    expect((await runToEnd(['status', '--json'], { ...userEnv(directory), ...more })).out).toBe('[]\n');
  });

  it('works without HOME for a user that is not in /etc/passwd, and refuses ~ with 2', async ({ skip }) => {
    skip(process.getuid?.() !== 0, 'needs root to become another user');
    const uid = 1_954_321;
    const directory = scratch();
    chmodSync(directory, 0o777);
    const env = { ...userEnv(directory), ...GATEWAY };
    const start = ['env', '-u', 'HOME', NODE, AGENT_MAIN, 'start'];
    const run = new Managed(start, { label: 'agent', env, uid });
    await run.line(/again in/, 10_000);
    run.signal('SIGTERM');
    expect(await run.end(10_000)).toEqual({ code: 143, signal: null });
    const there = new Managed([...start, '--token-file', '~/token'], { env, uid });
    expect(await there.end(10_000)).toEqual({ code: 2, signal: null });
    expect(there.output).toContain('~/token: this user has no home directory here');
  });

  it('works where it may not enter its home, with a warning', async ({ skip }) => {
    skip(process.getuid?.() !== 0, 'needs root to become another user');
    const directory = scratch();
    chmodSync(directory, 0o777);
    const home = join(directory, 'home');
    mkdirSync(home, { mode: 0o700 });
    const run = agent(directory, [], { HOME: home }, 65_534);
    await run.line(/warning: cannot read .*\.config\/otela-agent\/config: EACCES/, 10_000);
    await run.line(/again in/, 10_000);
  });

  it('keeps its state below /tmp where it may not write in TMPDIR, and is found there', async ({ skip }) => {
    skip(process.getuid?.() !== 0, 'needs root to become another user');
    const uid = 1_954_322;
    onTestFinished(() => {
      for (const name of ['otela-agent', `otela-agent-${uid}`]) {
        // The first name may belong to another user; the agent did not use it then.
        if (statSync(join('/tmp', name), { throwIfNoEntry: false })?.uid === uid)
          rmSync(join('/tmp', name), { recursive: true });
      }
    });
    const directory = scratch();
    chmodSync(directory, 0o755);
    const more = { TMPDIR: directory, XDG_RUNTIME_DIR: '' };
    const run = agent(directory, [], more, uid);
    await run.line(/state in \/tmp\/otela-agent/, 10_000);
    await run.line(/again in/, 10_000);
    const env = { ...userEnv(directory), ...more };
    const status = new Managed([NODE, AGENT_MAIN, 'status', '--json'], { uid, env });
    expect(await status.end(10_000)).toEqual({ code: 0, signal: null });
    expect(status.output).toContain('"gateways"');
    run.signal('SIGTERM');
    await run.end(10_000);
  });
});
