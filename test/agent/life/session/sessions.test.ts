/** Sessions end and their agent continues: each is followed by another. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Session } from '../../../../agent/life/session/session.ts';
import { Sessions } from '../../../../agent/life/session/sessions.ts';
import { type AdmissionOptions, AdmissionRefusedError } from '../../../../agent/tunnel/gateway-admission.ts';
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import { startEngine } from '../../../support/engine.ts';
import { promise } from '../../../support/patience.ts';
import { eventually, freePort } from '../../../support/processes.ts';
import { fakeAdmission } from '../../support/fake-admission.ts';
import { engineCommand, type Run, runToEnd, scratch, startAgent, userEnv } from '../../support/harness.ts';

describe('an engine of somebody else’s that is stopped', () => {
  it('ends its session with DOWN and LEFT; the agent joins idle as a new one, and serves with it when an engine is back', async () => {
    const port = await freePort();
    let engine = await startEngine({ port, models: ['first'] });
    const directory = scratch();
    const run = startAgent(directory, ['--engine-url', engine.url], {}, { engineGoneMs: 200 });
    await run.state('SERVING');
    await engine.close();
    await run.until(() => run.tunnels.length === 2 && run.tunnels[1]?.latest !== undefined);
    const [first, second] = run.tunnels;
    await run.until(() => first?.calls.includes('close') ?? false);
    expect(first?.states).toEqual(['JOIN', 'SERVING', 'DOWN', 'LEFT']);
    expect(second?.states).toEqual(['JOIN']);
    expect(second?.latest?.models).toEqual([]);
    expect(second?.options.identity.session).not.toBe(first?.options.identity.session);
    expect(second?.options.identity.publicKey).not.toBe(first?.options.identity.publicKey);

    engine = await startEngine({ port, models: ['second'] });
    onTestFinished(() => engine.close());
    await run.until(() => second?.latest?.state === 'SERVING');
    expect(second?.latest?.models.map(({ id }) => id)).toEqual(['second']);
    run.signal('SIGTERM');
    expect(await run.exit).toBe(143);
    expect(second?.states).toEqual(['JOIN', 'SERVING', 'DOWN', 'LEFT']);
    expect(first?.latest?.state).toBe('LEFT');
  });

  it('keeps its session when it is only restarted', async () => {
    const port = await freePort();
    let engine = await startEngine({ port });
    const run = startAgent(scratch(), ['--engine-url', engine.url], {}, { engineGoneMs: 5000 });
    await run.state('SERVING');
    await engine.close();
    await run.until(() => run.tunnel.latest?.models[0]?.state === 'loading');
    engine = await startEngine({ port });
    onTestFinished(() => engine.close());
    await run.until(() => run.tunnel.latest?.models[0]?.state === 'ready');
    expect(run.tunnels).toHaveLength(1);
    expect(run.tunnel.states).toEqual(['JOIN', 'SERVING']);
  });
});

describe('a session that the gateway says has ended', () => {
  it('is followed by a new one of the same engine; commands find the agent under its new name', async () => {
    const directory = scratch();
    const run = startAgent(directory, ['--', ...engineCommand(await freePort())]);
    await run.state('SERVING');
    const [first] = run.tunnels;
    const before = JSON.parse((await runToEnd(['status', '--json'], userEnv(directory))).out);
    first?.options.onOver?.('it was silent for too long');
    await run.until(() => run.tunnels[1]?.latest?.state === 'SERVING');
    await run.until(() => first?.calls.at(-1) === 'close');
    expect(run.tunnels[1]?.states).toEqual(['JOIN', 'SERVING']);
    const after = JSON.parse((await runToEnd(['status', '--json'], userEnv(directory))).out);
    expect(after).toMatchObject([{ session: run.tunnels[1]?.options.identity.session, state: 'SERVING' }]);
    expect(after[0].engine.pid).toBe(before[0].engine.pid);
    expect(readdirSync(join(directory, 'otela-agent'))).toEqual([after[0].session]);
  });

  it('is closed when its agent leaves before the next one is there', async () => {
    const run = startAgent(scratch(), ['--', ...engineCommand(await freePort())]);
    await run.state('SERVING');
    run.tunnel.options.onOver?.('evicted');
    run.signal('SIGTERM');
    expect(await run.exit).toBe(143);
    expect(run.tunnels).toHaveLength(1);
    expect(run.tunnel.calls.at(-1)).toBe('close');
  });

  it('lives on while another gateway serves it', async () => {
    const run = startAgent(scratch(), ['--gateway', 'http://127.0.0.1:9,http://127.0.0.1:10']);
    await run.until(() => run.tunnels.length === 2 && run.tunnels.every(({ latest }) => latest !== undefined));
    run.tunnels[0]?.options.onOver?.('evicted');
    await run.until(() => run.stderr.text.includes('the session has ended: evicted'));
    expect(run.tunnels).toHaveLength(2);
    run.tunnels[1]?.options.onOver?.('evicted as well');
    await run.until(() => run.tunnels.length === 4 && run.tunnels[3]?.latest !== undefined);
  });

  it('again and again is followed ever later, not by a session per round trip', async () => {
    const run = startAgent(scratch(), []);
    const began = performance.now();
    for (let n = 0; n < 4; n++) {
      await run.until(() => run.tunnels[n]?.latest !== undefined);
      run.tunnels[n]?.options.onOver?.('no');
    }
    await run.until(() => run.tunnels.length === 5);
    // 0.5, 1, 2 and 4 s, each at least half as long.
    expect(performance.now() - began).toBeGreaterThan(3000);
  });
});

/** An agent with an engine that runs already. Its first ticket is short, the later ones are not. */
async function startWithShortTicket(): Promise<Run> {
  const engine = await startEngine();
  onTestFinished(() => engine.close());
  let admitted = 0;
  const shortS = Math.ceil(promise(2_000) / 1000);
  const admit = (asked: AdmissionOptions) => fakeAdmission(asked, admitted++ === 0 ? shortS : 3600);
  return startAgent(scratch(), ['--engine-url', engine.url], {}, { admit });
}

describe('a session whose ticket runs out', () => {
  it('is followed before that by one which serves already; then it drains and leaves', async () => {
    const run = await startWithShortTicket();
    await run.state('SERVING');
    const { tunnels } = run;
    const [first] = tunnels;
    if (first) first.inFlight = 1;
    await run.until(() => tunnels[1]?.latest?.state === 'SERVING');
    await run.until(() => first?.latest?.state === 'DOWN');
    expect(first?.calls.at(-1)).toBe('drain');
    if (first) first.inFlight = 0;
    await run.until(() => first?.calls.at(-1) === 'close');
    expect(first?.states).toEqual(['JOIN', 'SERVING', 'DOWN', 'LEFT']);
    expect(tunnels[1]?.states).toEqual(['JOIN', 'SERVING']);
  });

  it('serves to the end of its ticket where the join token is refused by then, and leaves with the agent', async () => {
    let admitted = 0;
    const admit = async (asked: AdmissionOptions) => {
      if (admitted++ === 0) return fakeAdmission(asked, 2);
      throw new AdmissionRefusedError({ status: 401, message: 'revoked' });
    };
    const run = startAgent(scratch(), [], {}, { admit });
    await run.state('JOIN');
    await run.until(() => run.stderr.text.includes('cannot start a new session yet: 401 revoked'));
    expect(run.tunnel.latest?.state).toBe('JOIN');
    run.tunnel.options.onOver?.('the ticket has ended');
    expect(await run.exit).toBe(69);
  });

  it('leaves with its agent when that ends in between', async () => {
    const run = await startWithShortTicket();
    await run.state('SERVING');
    const { tunnels } = run;
    const [first] = tunnels;
    if (first) first.inFlight = 1;
    await run.until(() => tunnels[1]?.latest?.state === 'SERVING');
    run.signal('SIGTERM');
    await run.until(() => tunnels[1]?.latest?.state === 'DOWN');
    if (first) first.inFlight = 0;
    expect(await run.exit).toBe(143);
    for (const tunnel of tunnels) {
      expect(tunnel.states.at(-1)).toBe('LEFT');
      expect(tunnel.calls.at(-1)).toBe('close');
    }
  });
});

it('an agent whose next admission fails in a way that nobody foresaw keeps its engine and tries again', async () => {
  let asked = 0;
  const admit = async (asking: AdmissionOptions) => {
    if (++asked === 2) throw new TypeError('a bug');
    return fakeAdmission(asking);
  };
  const run = startAgent(scratch(), ['--', ...engineCommand(await freePort())], {}, { admit });
  await run.state('SERVING');
  run.tunnel.options.onOver?.('evicted');
  await run.until(() => run.tunnels[1]?.latest?.state === 'SERVING');
  expect(run.stderr.text).toContain('cannot start a new session: a bug');
});

it('an agent of several sessions leaves nothing behind', async () => {
  const directory = scratch();
  const run = startAgent(directory, []);
  await run.state('JOIN');
  run.tunnel.options.onOver?.('once');
  await run.until(() => run.tunnels[1]?.latest !== undefined);
  run.signal('SIGTERM');
  await run.exit;
  expect(existsSync(join(directory, 'otela-agent')) && readdirSync(join(directory, 'otela-agent'))).toEqual([]);
});

/** An agent's sessions. The tickets of the first `short` sessions run out immediately. */
function stubSessions(short: number) {
  const left: string[] = [];
  const opened: string[] = [];
  const idle: string[] = [];
  const stub = (id: string) =>
    ({
      id,
      inFlight: 1,
      peers: 0,
      stored: Promise.resolve(),
      open: () => void opened.push(id),
      change: () => {},
      drain: () => new Promise<void>(() => {}),
      leave: async () => void left.push(id),
    }) as unknown as Session;
  const sessions = new Sessions({
    facts: {} as ConstructorParameters<typeof Sessions>[0]['facts'],
    admit: async () => ({
      lifetimeMs: opened.length < short ? 10 : 3_600_000,
      create: () => stub(`s${opened.length}`),
    }),
    onCurrent: () => {},
    onIdle: () => void idle.push(opened.at(-1) ?? ''),
    onRefused: () => {},
    log: () => {},
    random: () => 0,
  });
  onTestFinished(() => sessions.down());
  return { sessions, opened, left, idle };
}

it('at most four replaced sessions drain, also if their tickets run out immediately', async () => {
  const { sessions, opened, left } = stubSessions(8);
  await sessions.open();
  await eventually('nine sessions', 20_000, () => opened.length === 9 || undefined);
  // One serves and four drain.
  expect([sessions.inFlight, left]).toEqual([5, ['s0', 's1', 's2', 's3']]);
  neverRejects(sessions.becomeIdle('its engine is gone'));
  expect([sessions.inFlight, left.at(-1)]).toEqual([4, 's4']);
});

it('reports each session that ends because it serves nothing, and none that only its ticket ends', async () => {
  const { sessions, opened, idle } = stubSessions(1);
  await sessions.open();
  await eventually('two sessions', 20_000, () => opened.length === 2 || undefined);
  expect(idle).toEqual([]);
  neverRejects(sessions.becomeIdle('its engine hangs'));
  // Before the next session: weights that are copied from now on wait for it.
  expect(idle).toEqual(['s1']);
});
