/** An agent from its first record to its last: what it publishes on the way, and what may end it. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { AdmissionOptions } from '../../../agent/tunnel/gateway-admission.ts';
import { PAYLOAD_MAX_BYTES } from '../../../shared/lattice/node-payload.ts';
import { startEngine } from '../../support/engine.ts';
import { freePort } from '../../support/processes.ts';
import { fakeAdmission, LAB } from '../support/fake-admission.ts';
import {
  AGAIN_MS,
  engineCommand,
  FOR_EVER,
  fakeTool,
  processRuns,
  scratch,
  scriptedEngine,
  startAgent,
} from '../support/harness.ts';

describe('the life of an agent', () => {
  it('joins, serves when /v1/models answers, and on SIGTERM is down, drains, has left and exits with 143', async () => {
    const run = startAgent(scratch(), ['--', ...engineCommand(await freePort(), '--model', 'a/b')]);
    await run.state('SERVING');
    expect(run.tunnel.latest?.models).toMatchObject([{ id: 'a/b', state: 'ready', context_length: 32_768 }]);
    expect(run.tunnel.options.engine()?.origin).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    run.signal('SIGTERM');
    expect(await run.exit).toBe(143);
    expect(run.tunnel.states).toEqual(['JOIN', 'SERVING', 'DOWN', 'LEFT']);
    expect(run.tunnel.calls.slice(-4)).toEqual(['publish DOWN', 'drain', 'publish LEFT', 'close']);
    expect(run.tunnel.published.find(({ state }) => state === 'DOWN')).toMatchObject({ leaving: 'SIGTERM' });
  });

  it('publishes records that a gateway accepts, with versions that grow', async () => {
    const run = startAgent(scratch(), ['--label', 'a=b', '--', ...engineCommand(await freePort())]);
    await run.state('SERVING');
    run.signal('SIGTERM');
    await run.exit;
    const versions = run.tunnel.published.map(({ version }) => version);
    expect(versions).toEqual([...versions].sort((a, b) => a - b));
    expect(new Set(versions).size).toBeGreaterThanOrEqual(4);
  });

  it('joins idle without a command and leaves with 143', async () => {
    const run = startAgent(scratch(), []);
    await run.state('JOIN');
    expect(run.tunnel.options.engine()).toBeUndefined();
    run.signal('SIGUSR1');
    expect(await run.exit).toBe(143);
    expect(run.tunnel.states).toEqual(['JOIN', 'DOWN', 'LEFT']);
  });

  it('waits for running requests before it leaves', async () => {
    const run = startAgent(scratch(), ['--', ...engineCommand(await freePort())]);
    await run.state('SERVING');
    run.tunnel.inFlight = 2;
    run.signal('SIGTERM');
    await run.until(() => run.tunnel.calls.includes('drain'));
    expect(run.tunnel.latest?.state).toBe('DOWN');
    expect(run.tunnel.options.engine()).toBeDefined();
    run.tunnel.inFlight = 0;
    expect(await run.exit).toBe(143);
  });

  it('leaves with requests still running when --drain-timeout is over', async () => {
    const run = startAgent(scratch(), ['--drain-timeout', '50ms', '--', ...engineCommand(await freePort())]);
    await run.state('SERVING');
    run.tunnel.inFlight = 1;
    run.signal('SIGTERM');
    expect(await run.exit).toBe(143);
    expect(run.stderr.text).toContain('1 requests are still running');
    expect(run.tunnel.states.at(-1)).toBe('LEFT');
  });

  it('ends at once on a second signal although requests run', async () => {
    const run = startAgent(scratch(), ['--', ...engineCommand(await freePort())]);
    await run.state('SERVING');
    run.tunnel.inFlight = 1;
    run.signal('SIGTERM');
    await run.until(() => run.tunnel.calls.includes('drain'));
    await delay(AGAIN_MS);
    run.signal('SIGINT');
    expect(await run.exit).toBe(143);
  });

  it('takes TERM, CONT, TERM within a second, as srun delivers them, for one signal', async () => {
    const run = startAgent(scratch(), ['--', ...engineCommand(await freePort())]);
    await run.state('SERVING');
    run.tunnel.inFlight = 1;
    run.signal('SIGTERM');
    run.signal('SIGTERM');
    await run.until(() => run.tunnel.calls.includes('drain'));
    expect(run.stderr.text).not.toContain('exiting immediately');
    run.tunnel.inFlight = 0;
    expect(await run.exit).toBe(143);
  });

  it('follows models that come and go', async () => {
    const engine = await startEngine({ models: ['base'] });
    onTestFinished(() => engine.close());
    const run = startAgent(scratch(), ['--engine-url', `${engine.url}/v1/`]);
    await run.state('SERVING');
    engine.setModels(['base', 'adapter']);
    await run.until(() => run.tunnel.latest?.models.length === 2);
    expect(run.tunnel.latest?.models.map(({ id }) => id)).toEqual(['base', 'adapter']);
  });

  it('serves the others where one model has no name or one that is too long, and says so once', async () => {
    const engine = await startEngine({ models: ['', 'x'.repeat(257), 'base'] });
    onTestFinished(() => engine.close());
    const run = startAgent(scratch(), ['--engine-url', engine.url]);
    await run.state('SERVING');
    expect(run.tunnel.latest?.models.map(({ id }) => id)).toEqual(['base']);
    engine.setModels(['', 'x'.repeat(257), 'base', 'adapter']);
    await run.until(() => run.tunnel.latest?.models.length === 2);
    expect(run.stderr.text.match(/ignored 2 models of the engine: their names are empty or longer/g)).toHaveLength(1);
  });

  it('calls the models loading, and itself still serving, when a foreign engine stops listening, and ready when it is back', async () => {
    const port = await freePort();
    let engine = await startEngine({ port });
    const run = startAgent(scratch(), ['--engine-port', String(port)]);
    await run.state('SERVING');
    await engine.close();
    await run.until(() => run.tunnel.latest?.models[0]?.state === 'loading');
    expect(run.tunnel.latest?.state).toBe('SERVING');
    expect(run.tunnel.options.engine()).toBeUndefined();
    engine = await startEngine({ port });
    onTestFinished(() => engine.close());
    await run.until(() => run.tunnel.latest?.models[0]?.state === 'ready');
  });

  it('reaches an engine under a path prefix with its own key', async () => {
    const directory = scratch();
    const engine = await startEngine({ pathPrefix: '/llm', apiKey: 'engine-secret' });
    onTestFinished(() => engine.close());
    const keyFile = join(directory, 'key');
    writeFileSync(keyFile, 'engine-secret\n', { mode: 0o600 });
    const run = startAgent(directory, ['--engine-url', engine.url, '--engine-key-file', keyFile]);
    await run.state('SERVING');
    expect(run.tunnel.options.engine()).toMatchObject({ pathPrefix: '/llm', key: 'engine-secret' });
    expect(run.stderr.text).not.toContain('engine-secret');
  });
});

describe('what is published', () => {
  it('never exceeds what a registry takes, and says what was left out', async () => {
    const models = Array.from({ length: 64 }, (_, i) => `${i}`.padEnd(256, 'x'));
    const engine = await startEngine({ models });
    onTestFinished(() => engine.close());
    const run = startAgent(scratch(), ['--engine-url', engine.url]);
    await run.state('SERVING');
    const { bytes = 0 } = run.tunnel.latest ?? {};
    expect(bytes).toBeLessThanOrEqual(PAYLOAD_MAX_BYTES);
    expect(bytes).toBeGreaterThan(PAYLOAD_MAX_BYTES - 400);
    expect(run.stderr.text).toMatch(/only \d+ of 64 models fit/);
  });

  it('is accepted even where every name is as long as it may be and costs six bytes a letter', async () => {
    const engine = await startEngine({ models: ['\u0001'.repeat(256)] });
    onTestFinished(() => engine.close());
    const job = { SLURM_JOB_ID: '1', SLURMD_NODENAME: '\u0001'.repeat(255), SLURM_JOB_PARTITION: '\u0001'.repeat(64) };
    const run = startAgent(scratch(), ['--label', `a=${'\u0001'.repeat(150)}`, '--engine-url', engine.url], job);
    await run.state('SERVING');
    expect(run.tunnel.latest?.bytes).toBeLessThanOrEqual(PAYLOAD_MAX_BYTES);
    expect(run.tunnel.latest?.models).toHaveLength(1);
  });

  it('carries facts, and warns of one for a model that is not served', async () => {
    const engine = await startEngine({ models: ['org/m:8b'] });
    onTestFinished(() => engine.close());
    const facts = ['--fact', 'org/m:8b:quantization=awq', '--fact', 'org/n:context=5'];
    const run = startAgent(scratch(), ['--engine-url', engine.url, ...facts]);
    await run.state('SERVING');
    expect(run.tunnel.latest?.models).toMatchObject([{ id: 'org/m:8b', quantization: 'awq', context_length: 32_768 }]);
    expect(run.stderr.text).toContain('this engine does not serve org/n, which --fact names');
  });

  it('carries the precision of a plain `vllm serve`, from its checkpoint in the hub’s cache', async () => {
    const directory = scratch();
    const snapshot = join(directory, 'home', '.cache', 'huggingface', 'hub', 'models--org--m', 'snapshots', 'abc');
    mkdirSync(snapshot, { recursive: true });
    writeFileSync(join(snapshot, 'config.json'), JSON.stringify({ torch_dtype: 'bfloat16' }));
    const [node, main, ...flags] = engineCommand(await freePort(), '--model', 'org/m');
    fakeTool(directory, 'vllm', `shift 2; exec ${node} ${main} "$@"`);
    const run = startAgent(directory, ['--', 'vllm', 'serve', 'org/m', ...flags]);
    await run.state('SERVING');
    await run.until(() => run.tunnel.latest?.models[0]?.quantization !== undefined);
    expect(run.tunnel.latest?.models).toMatchObject([{ id: 'org/m', state: 'ready', quantization: 'bfloat16' }]);
  });

  it('is repeated neither when nothing has changed nor by looking again', async () => {
    const engine = await startEngine();
    onTestFinished(() => engine.close());
    const run = startAgent(scratch(), ['--engine-url', engine.url]);
    await run.state('SERVING');
    const published = run.tunnel.published.length;
    engine.setModels(['other']);
    await run.until(() => run.tunnel.latest?.models[0]?.id === 'other');
    expect(run.tunnel.published.length).toBe(published + 1);
  });
});

it('asks for its next session where the own institution is, never at the gateway of a peer', async () => {
  const directory = scratch();
  const asked: AdmissionOptions[] = [];
  const agent = startAgent(
    directory,
    [],
    {},
    {
      admit: async (options) => {
        asked.push(options);
        const gateways = ['second', 'peer'].map((name) => ({
          url: new URL(`http://${name}/`),
          own: name !== 'peer',
        }));
        return { ...(await fakeAdmission(options)), gateways };
      },
    },
  );
  await agent.until(() => agent.tunnels.length === 3);
  const session = agent.tunnels[0]?.latest;
  expect(session).toBeDefined();
  for (const { options } of agent.tunnels.slice(0, 2)) options.onOver?.('evicted');
  await agent.until(() => asked.length === 2);
  expect(asked.map(({ gateways }) => gateways.map(({ host }) => host))).toEqual([
    ['127.0.0.1:9'],
    ['127.0.0.1:9', 'second'],
  ]);
  expect(asked.map(({ issuer }) => issuer)).toEqual([undefined, LAB]);
});

it('drains where it has a fault of its own: its engine is well, and its requests end', async () => {
  const agent = startAgent(scratch(), ['--', ...engineCommand(await freePort(), '--model', 'a/b')]);
  await agent.state('SERVING');
  agent.tunnel.inFlight = 1;
  agent.fault(new Error('nobody caught this'));
  agent.fault(new Error('nor this'));
  await agent.state('DOWN');
  expect(agent.tunnel.calls).not.toContain('close');
  expect(agent.tunnel.latest?.leaving).toBe('agent-fault');
  agent.tunnel.inFlight = 0;
  expect(await agent.exit).toBe(70);
  expect(agent.tunnel.states.at(-1)).toBe('LEFT');
  expect(agent.stderr.text).toContain('internal error of the agent: Error: nobody caught this');
  expect(agent.stderr.text).toContain('nor this');
});

describe('a gateway that refuses', () => {
  it('ends the agent and its engine with 69', async () => {
    const run = startAgent(scratch(), scriptedEngine(`console.log('pid', process.pid); ${FOR_EVER}`));
    await run.until(() => run.stdout.text.includes('pid ') && run.tunnels.length > 0);
    run.tunnel.options.onRefused({ status: 401, message: 'unknown token' });
    expect(await run.exit).toBe(69);
    expect(run.stderr.text).toContain('401 unknown token');
    expect(processRuns(Number(/pid (\d+)/.exec(run.stdout.text)?.[1]))).toBe(false);
  });

  it('cannot write to the operator’s terminal through its message', async () => {
    const run = startAgent(scratch(), []);
    await run.state('JOIN');
    run.tunnel.options.onRefused({ status: 401, message: 'no\u001b[2J\notela-agent: all is well' });
    expect(await run.exit).toBe(69);
    expect(run.stderr.text).not.toContain('\u001b');
    expect(run.stderr.text).not.toMatch(/^otela-agent: all is well/m);
  });

  it('leaves the others served', async () => {
    const run = startAgent(scratch(), ['--gateway', 'http://127.0.0.1:9,http://127.0.0.1:10']);
    await run.until(() => run.tunnels.length === 2 && run.tunnels.every(({ latest }) => latest?.state === 'JOIN'));
    run.tunnels[0]?.options.onRefused({ status: 403, message: 'not here' });
    run.signal('SIGTERM');
    expect(await run.exit).toBe(143);
    expect(run.tunnels[0]?.states).toEqual(['JOIN']);
    expect(run.tunnels[1]?.states).toEqual(['JOIN', 'DOWN', 'LEFT']);
  });
});

it('a directory for logs that hangs holds up neither LEFT nor the end', async () => {
  const directory = scratch();
  const run = startAgent(scratch(), ['--log-dir', directory, ...scriptedEngine(FOR_EVER)]);
  await run.until(() => run.stderr.text.includes('session '));
  // Opening a FIFO waits for its reader, as any call does at a file server that is unreachable.
  const fifo = join(directory, `otela-${/session (\w+),/.exec(run.stderr.text)?.[1]}.log`);
  execFileSync('mkfifo', [fifo]);
  onTestFinished(() => void execFileSync('timeout', ['5', 'cat', fifo]));
  run.signal('SIGTERM');
  expect(await run.exit).toBe(143);
  expect(run.tunnel.latest?.state).toBe('LEFT');
});
