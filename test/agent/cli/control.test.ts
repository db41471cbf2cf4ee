import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { connect } from 'node:net';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { startEngine } from '../../support/engine.ts';
import { freePort } from '../../support/processes.ts';
import { engineCommand, NODE, Run, runToEnd, scratch, startAgent, userEnv } from '../support/harness.ts';

const sessionOf = (run: Run) => run.tunnel.options.identity.session;
const socketOf = (directory: string, run: Run) => join(directory, 'otela-agent', sessionOf(run), 'control.sock');

/** Sends `text` to a control socket and reads until the end. */
function say(path: string, text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let answer = '';
    const socket = connect(path, () => socket.write(text));
    socket.setEncoding('utf8').on('data', (piece) => {
      answer += piece;
    });
    socket.on('error', reject);
    socket.on('close', () => resolve(answer));
  });
}

describe('otela-agent status, models, logs and drain', () => {
  it('tell what an agent does and serves', async () => {
    const directory = scratch();
    const run = startAgent(directory, ['--', ...engineCommand(await freePort(), '--model', 'a/b')]);
    await run.state('SERVING');
    const json = await runToEnd(['status', '--json'], userEnv(directory));
    expect(JSON.parse(json.out)).toMatchObject([
      {
        session: sessionOf(run),
        state: 'SERVING',
        gateways: [{ url: 'http://127.0.0.1:9/', connected: true, in_flight: 0 }],
        engine: { answering: true },
        models: [{ id: 'a/b', state: 'ready' }],
      },
    ]);
    expect((await runToEnd(['status'], userEnv(directory))).out).toContain('connected, 0 running');
    const models = await runToEnd(['models', '--json'], userEnv(directory));
    expect(JSON.parse(models.out)).toMatchObject([{ session: sessionOf(run), id: 'a/b', context_length: 32_768 }]);
  });

  it('show the engine’s output byte for byte', async () => {
    const directory = scratch();
    const body =
      'process.stdout.write(Buffer.from([0,255,10,65]), () => console.error("up")); setInterval(() => {}, 1e6)';
    const run = startAgent(directory, ['--engine-port', '9', '--', NODE, '-e', body]);
    await run.until(() => /^up$/m.test(run.stderr.text) && run.stdout.bytes.length === 4 && run.tunnels.length > 0);
    const logs = new Run(['logs'], userEnv(directory));
    expect(await logs.exit).toBe(0);
    // Two pipes: their order of arrival is not defined.
    expect(logs.stdout.bytes.includes(Buffer.from([0, 255, 10, 65]))).toBe(true);
    expect(logs.stdout.bytes).toHaveLength(4 + 'up\n'.length);
  });

  it('follow the output until the agent has gone', async () => {
    const directory = scratch();
    const body =
      'console.log("first"); process.stdin.resume; setTimeout(() => console.log("second"), 400); setTimeout(() => process.exit(1), 800)';
    const run = startAgent(directory, ['--engine-port', '9', '--', NODE, '-e', body]);
    await run.until(() => run.stdout.text.includes('first') && run.tunnels.length > 0);
    const logs = new Run(['logs', '--follow'], userEnv(directory));
    await logs.until(() => logs.stdout.text.includes('second'));
    expect(await logs.exit).toBe(0);
    expect(await run.exit).toBe(70);
  });

  it('drain an agent, wait for it with --wait, and end it with 0', async () => {
    const directory = scratch();
    const run = startAgent(directory, []);
    await run.state('JOIN');
    run.tunnel.inFlight = 1;
    const drain = new Run(['drain', '--wait'], userEnv(directory));
    await run.state('DOWN');
    expect(drain.stdout.text).not.toContain('has left');
    run.tunnel.inFlight = 0;
    expect(await run.exit).toBe(0);
    expect(await drain.exit).toBe(0);
    expect(drain.stdout.text).toContain(`${sessionOf(run)} has left`);
  });

  it('never guess which of two agents to drain', async () => {
    const directory = scratch();
    const [one, two] = [startAgent(directory, []), startAgent(directory, [])];
    await Promise.all([one.state('JOIN'), two.state('JOIN')]);
    const guess = await runToEnd(['drain'], userEnv(directory));
    expect(guess.code).toBe(2);
    expect(guess.err).toContain(sessionOf(one));
    const named = await runToEnd(['drain', '--session', sessionOf(two)], userEnv(directory));
    expect(named.code).toBe(0);
    expect(await two.exit).toBe(0);
    expect(one.tunnel.latest?.state).toBe('JOIN');
  });

  it('mean the agent of the job and node they run in', async () => {
    const directory = scratch();
    const [one, two] = [
      startAgent(directory, [], { SLURM_JOB_ID: '7', SLURMD_NODENAME: 'n1' }),
      startAgent(directory, [], { SLURM_JOB_ID: '7', SLURMD_NODENAME: 'n2' }),
    ];
    await Promise.all([one.state('JOIN'), two.state('JOIN')]);
    const inside = userEnv(directory, { SLURM_JOB_ID: '7', SLURMD_NODENAME: 'n2' });
    expect((await runToEnd(['drain'], inside)).out).toContain(sessionOf(two));
    expect(await two.exit).toBe(0);
    expect(one.tunnel.latest?.state).toBe('JOIN');
  });

  it('say so when there is no agent', async () => {
    const env = userEnv(scratch());
    expect(await runToEnd(['status', '--json'], env)).toMatchObject({ code: 0, out: '[]\n' });
    expect(await runToEnd(['drain'], env)).toMatchObject({ code: 2 });
  });
});

describe('the control socket', () => {
  it('is private, and gone with its directory when the agent is', async () => {
    const directory = scratch();
    const run = startAgent(directory, []);
    await run.state('JOIN');
    const path = socketOf(directory, run);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(statSync(join(path, '..')).mode & 0o777).toBe(0o700);
    run.signal('SIGTERM');
    await run.exit;
    expect(readdirSync(join(directory, 'otela-agent'))).toEqual([]);
  });

  it('works where TMPDIR is longer than a socket’s address may be', async () => {
    const directory = join(scratch(), 'x'.repeat(100), 'y'.repeat(60));
    mkdirSync(directory, { recursive: true });
    const run = startAgent(directory, []);
    await run.state('JOIN');
    expect(Buffer.byteLength(socketOf(directory, run))).toBeGreaterThan(107);
    const { out } = await runToEnd(['status', '--json'], userEnv(directory));
    expect(JSON.parse(out)).toHaveLength(1);
  });

  it.each([
    ['garbage', 'hello\n'],
    ['an unknown request', '{"op":"explode"}\n'],
    ['a request without end', 'x'.repeat(5000)],
    ['JSON that is no request', 'null\n'],
  ])('refuses %s and goes on', async (_what, text) => {
    const directory = scratch();
    const run = startAgent(directory, []);
    await run.state('JOIN');
    const answer = await say(socketOf(directory, run), text);
    expect(JSON.parse(answer)).toMatchObject({ ok: false });
    expect(JSON.parse((await runToEnd(['status', '--json'], userEnv(directory))).out)).toHaveLength(1);
  });

  it('never reveals the token or the engine’s key', async () => {
    const directory = scratch();
    const engine = await startEngine({ apiKey: 'key-secret' });
    onTestFinished(() => engine.close());
    const run = startAgent(directory, ['--engine-url', engine.url], {
      OTELA_TOKEN: 'token-secret',
      OTELA_ENGINE_KEY: 'key-secret',
    });
    await run.state('SERVING');
    expect(await say(socketOf(directory, run), '{"op":"status"}\n')).not.toMatch(/secret/);
  });
});

const randomSession = () => [...randomBytes(26)].map((byte) => 'abcdefghijklmnopqrstuvwxyz234567'[byte & 31]).join('');

describe('state left behind', () => {
  const old = new Date(Date.now() - 3_600_000);

  function leftover(directory: string, host: string) {
    const path = join(directory, 'otela-agent', randomSession());
    mkdirSync(path, { recursive: true, mode: 0o700 });
    writeFileSync(join(path, 'owner.json'), JSON.stringify({ pid: 1, host }));
    utimesSync(path, old, old);
    return path;
  }

  it('by a killed agent is removed by the next one; another host’s and younger ones are left', async () => {
    const directory = scratch();
    const [stale, foreign, young] = [
      leftover(directory, hostname()),
      leftover(directory, 'elsewhere'),
      leftover(directory, hostname()),
    ];
    utimesSync(young, new Date(), new Date());
    const running = startAgent(directory, []);
    await running.state('JOIN');
    utimesSync(join(directory, 'otela-agent', sessionOf(running)), old, old);
    const run = startAgent(directory, []);
    await run.state('JOIN');
    expect(existsSync(stale)).toBe(false);
    expect(existsSync(foreign)).toBe(true);
    expect(existsSync(young)).toBe(true);
    expect(existsSync(socketOf(directory, running))).toBe(true);
  });

  it('of another user under the same name is passed by', async () => {
    const directory = scratch();
    mkdirSync(join(directory, 'otela-agent'), { mode: 0o777 });
    // A directory that others may write is as bad as one that another user owns: sessions in it could be replaced.
    chmodSync(join(directory, 'otela-agent'), 0o777);
    const run = startAgent(directory, []);
    await run.state('JOIN');
    expect(readdirSync(join(directory, 'otela-agent'))).toEqual([]);
    const { out } = await runToEnd(['status', '--json'], userEnv(directory));
    expect(JSON.parse(out)).toMatchObject([{ session: sessionOf(run) }]);
  });

  it('takes a random name when both fixed names are taken, and commands and the next agent find it', async () => {
    const directory = scratch();
    for (const name of new Set(['otela-agent', `otela-agent-${process.getuid?.()}`])) {
      mkdirSync(join(directory, name));
      chmodSync(join(directory, name), 0o777);
    }
    const run = startAgent(directory, []);
    await run.state('JOIN');
    const next = startAgent(directory, []);
    await next.state('JOIN');
    const { out } = await runToEnd(['status', '--json'], userEnv(directory));
    const found: { session: string }[] = JSON.parse(out);
    expect(found.map(({ session }) => session).sort()).toEqual([sessionOf(run), sessionOf(next)].sort());
    const random = readdirSync(directory).filter((name) => /^otela-agent-\d+-/.test(name));
    expect(random).toHaveLength(1);
    expect(statSync(join(directory, random[0] ?? '')).mode & 0o777).toBe(0o700);
  });

  it('is never placed behind a link that another user made', async () => {
    const directory = scratch();
    const elsewhere = join(directory, 'elsewhere');
    mkdirSync(elsewhere, { mode: 0o700 });
    symlinkSync(elsewhere, join(directory, 'otela-agent'));
    const run = startAgent(directory, []);
    await run.state('JOIN');
    expect(readdirSync(elsewhere)).toEqual([]);
  });

  it('goes to TMPDIR when XDG_RUNTIME_DIR is the login node’s and not here', async () => {
    const directory = scratch();
    const run = startAgent(directory, [], { XDG_RUNTIME_DIR: '/run/user/no-such-user' });
    await run.state('JOIN');
    expect(existsSync(socketOf(directory, run))).toBe(true);
  });
});
