import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { PAYLOAD_MAX_BYTES } from '../../../shared/lattice/payload.ts';
import { startEngine } from '../../support/engine.ts';
import { freePort } from '../../support/processes.ts';
import { engineCommand, fakeTool, NODE, processRuns, scratch, startAgent } from '../support/harness.ts';

/** An engine that serves nothing and does what the script says. */
const script = (body: string) => ['--engine-port', '9', '--', NODE, '-e', body];
const FOR_EVER = 'setInterval(() => {}, 1e6);';

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
    expect(run.stderr.text).toContain('1 requests still running');
    expect(run.tunnel.states.at(-1)).toBe('LEFT');
  });

  it('ends at once on a second signal although requests run', async () => {
    const run = startAgent(scratch(), ['--', ...engineCommand(await freePort())]);
    await run.state('SERVING');
    run.tunnel.inFlight = 1;
    run.signal('SIGTERM');
    await run.until(() => run.tunnel.calls.includes('drain'));
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
    expect(run.stderr.text).not.toContain('ending at once');
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
    expect(run.stderr.text).toContain('--fact names org/n, which this engine does not serve');
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

describe('an engine that fails', () => {
  it('is down and has left at once, shows in the exit code, and its last words are repeated', async () => {
    const port = await freePort();
    const run = startAgent(scratch(), ['--', ...engineCommand(port, '--exit-after-ms', '300')]);
    expect(await run.exit).toBe(70);
    expect(run.tunnel.states).toEqual(['JOIN', 'SERVING', 'DOWN', 'LEFT']);
    expect(run.stderr.text).toContain('the engine ended with code 3');
    expect(run.stderr.text).toContain(`stand-in engine ready http://127.0.0.1:${port}`);
  });

  it('is reported with its signal', async () => {
    const run = startAgent(scratch(), script('process.kill(process.pid, "SIGSEGV")'));
    expect(await run.exit).toBe(70);
    expect(run.stderr.text).toContain('ended by SIGSEGV');
  });

  it('that ends with 0 without being asked has failed as well', async () => {
    expect(await startAgent(scratch(), script('')).exit).toBe(70);
  });

  it('that does not exist is a clear line and 70', async () => {
    const run = startAgent(scratch(), ['--engine-port', '9', '--', 'no-such-engine']);
    expect(await run.exit).toBe(70);
    expect(run.stderr.text).toContain('could not be started: no command "no-such-engine" on the PATH');
  });

  it('ends its other processes too', async () => {
    const run = startAgent(
      scratch(),
      script(`const worker = require('node:child_process').spawn(process.execPath, ['-e', '${FOR_EVER}'], { stdio: 'ignore' });
        console.log('worker', worker.pid); setTimeout(() => process.exit(1), 100);`),
    );
    expect(await run.exit).toBe(70);
    const worker = Number(/worker (\d+)/.exec(run.stdout.text)?.[1]);
    expect(worker).toBeGreaterThan(1);
    expect(processRuns(worker)).toBe(false);
  });

  it('that ignores SIGTERM is killed after its grace', async () => {
    const directory = scratch();
    fakeTool(directory, 'scontrol', 'echo "KillWait                = 4 sec"');
    fakeTool(directory, 'squeue', 'exit 1');
    const run = startAgent(
      directory,
      script(`process.on('SIGTERM', () => console.log('ignored')); ${FOR_EVER} console.log('pid', process.pid);`),
      { SLURM_JOB_ID: '1' },
    );
    await run.until(() => run.stdout.text.includes('pid ') && run.tunnels.length > 0);
    run.signal('SIGTERM');
    expect(await run.exit).toBe(143);
    expect(run.stdout.text).toContain('ignored');
    expect(processRuns(Number(/pid (\d+)/.exec(run.stdout.text)?.[1]))).toBe(false);
  });

  it('is not waited for when it has died of the same scancel that ends the agent', async () => {
    const run = startAgent(scratch(), script(`console.log('pid', process.pid); ${FOR_EVER}`));
    await run.until(() => run.stdout.text.includes('pid ') && run.tunnels[0]?.latest !== undefined);
    run.tunnel.inFlight = 1;
    run.signal('SIGTERM');
    process.kill(Number(/pid (\d+)/.exec(run.stdout.text)?.[1]), 'SIGTERM');
    expect(await run.exit).toBe(143);
    expect(run.tunnel.states).toEqual(['JOIN', 'DOWN', 'LEFT']);
  });

  it('never starts where something answers already: it would be taken for ours', async () => {
    const other = await startEngine();
    onTestFinished(() => other.close());
    const run = startAgent(scratch(), ['--', ...engineCommand(other.port)]);
    expect(await run.exit).toBe(2);
    expect(run.stderr.text).toContain('answers at http://127.0.0.1');
    expect(run.tunnels).toHaveLength(0);
  });
});

describe('a gateway that refuses', () => {
  it('ends the agent and its engine with 69', async () => {
    const run = startAgent(scratch(), script(`console.log('pid', process.pid); ${FOR_EVER}`));
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

describe('what the engine gets and gives', () => {
  it('gets its argv as it is and an environment without OTELA_*', async () => {
    const args = ['', ' two  words ', '--token', '-x', '$HOME', '"', '--', '--process', 'ü\n'];
    const run = startAgent(
      scratch(),
      [
        '--engine-port',
        '9',
        '--',
        NODE,
        '-e',
        'console.log(JSON.stringify([process.argv.slice(1), process.env]))',
        '--',
        ...args,
      ],
      { OTELA_ENGINE_KEY: 'k', FOO: 'bar', 'BASH_FUNC_module%%': '() { :; }' },
    );
    await run.exit;
    const [argv, env] = JSON.parse(run.stdout.text);
    expect(argv).toEqual(args);
    expect(env.FOO).toBe('bar');
    // Exported shell functions: how clusters provide `module`.
    expect(env['BASH_FUNC_module%%']).toBe('() { :; }');
    expect(Object.keys(env).filter((name) => name.startsWith('OTELA_'))).toEqual([]);
  });

  it('is run by a shell when it is one argument with spaces', async () => {
    const run = startAgent(scratch(), ['--engine-port', '9', '--process', 'echo one && echo two; exit 5']);
    expect(await run.exit).toBe(70);
    expect(run.stdout.text).toBe('one\ntwo\n');
    expect(run.stderr.text).toContain('code 5');
  });

  it('lives through SIGUSR1, which Slurm sends to every process of a step', async () => {
    // `perl` has no handler of its own, as most engines; node opens its inspector on SIGUSR1.
    const run = startAgent(scratch(), [
      '--engine-port',
      '9',
      '--',
      'perl',
      '-e',
      '$| = 1; print "pid $$\\n"; sleep 1 while 1',
    ]);
    await run.until(() => run.stdout.text.includes('pid ') && run.tunnels[0]?.latest !== undefined);
    const pid = Number(/pid (\d+)/.exec(run.stdout.text)?.[1]);
    run.tunnel.inFlight = 1;
    process.kill(pid, 'SIGUSR1');
    run.signal('SIGUSR1');
    await run.until(() => run.tunnel.calls.includes('drain'));
    expect(processRuns(pid)).toBe(true);
    run.tunnel.inFlight = 0;
    expect(await run.exit).toBe(143);
  });

  it('has its output passed on byte for byte, to the stream it was written to', async () => {
    const run = startAgent(
      scratch(),
      script(`const all = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
        process.stdout.write(Buffer.concat(Array(4096).fill(all)), () => process.stderr.write(all));`),
    );
    await run.exit;
    const all = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
    expect(run.stdout.bytes.equals(Buffer.concat(Array(4096).fill(all)))).toBe(true);
    expect(run.stderr.bytes.includes(all)).toBe(true);
  });
});

describe('in a Slurm job', () => {
  const job = { SLURM_JOB_ID: '4711', SLURM_JOB_PARTITION: 'normal', SLURMD_NODENAME: 'n1' };

  it('tells job, node, partition and end, and is volatile', async () => {
    const directory = scratch();
    fakeTool(directory, 'squeue', '[ "$TZ" = UTC ] && [ "$3" = 4711 ] && echo 2099-01-02T03:04:05');
    const run = startAgent(directory, [], job);
    await run.until(() => run.tunnels[0]?.latest?.job?.ends_at !== undefined);
    expect(run.tunnel.latest).toMatchObject({
      tier: 'volatile',
      job: { id: '4711', node: 'n1', partition: 'normal', ends_at: '2099-01-02T03:04:05.000Z' },
    });
  });

  it('asks for its own task where the id is that of a whole array', async () => {
    const directory = scratch();
    fakeTool(directory, 'squeue', '[ "$3" = 4000_7 ] && echo 2099-01-02T03:04:05');
    const array = { SLURM_ARRAY_JOB_ID: '4000', SLURM_ARRAY_TASK_ID: '7' };
    const run = startAgent(directory, [], { ...job, ...array });
    await run.until(() => run.tunnels[0]?.latest?.job?.ends_at?.startsWith('2099') ?? false);
    expect(run.tunnel.latest?.job?.id).toBe('4711');
  });

  it.each([
    ['NONE', undefined],
    ['2099-01-02T03:04:05\n2099-01-02T03:04:05', '2099-01-02T03:04:05.000Z'],
    ['2099-01-02T03:04:05\n2098-01-02T03:04:05', '2100-01-01T00:00:00.000Z'],
    ['garbage', '2100-01-01T00:00:00.000Z'],
  ])('takes squeue’s answer "%s" for what it is worth', async (answer, ends) => {
    const directory = scratch();
    fakeTool(directory, 'squeue', `printf '${answer.replace(/\n/g, '\\n')}\\n'; touch ${directory}/asked`);
    // What the environment says holds until slurmctld says otherwise.
    const run = startAgent(directory, [], { ...job, SLURM_JOB_END_TIME: String(Date.UTC(2100, 0, 1) / 1000) });
    await run.until(() => existsSync(join(directory, 'asked')) && run.tunnels[0]?.latest !== undefined);
    await run.until(() => run.tunnels[0]?.latest?.job?.ends_at === ends);
  });

  it('joins all the same when squeue fails, and says so once', async () => {
    const directory = scratch();
    fakeTool(directory, 'squeue', 'echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1');
    const run = startAgent(directory, [], job);
    await run.until(() => run.stderr.text.includes('Unable to contact'));
    await run.state('JOIN');
    expect(run.tunnel.latest?.job).toEqual({ id: '4711', node: 'n1', partition: 'normal' });
  });

  it('drains --drain-before the end of the job and exits with 0', async () => {
    const directory = scratch();
    const ends = new Date(Date.now() + 30_000).toISOString().slice(0, 19);
    fakeTool(directory, 'squeue', `echo ${ends}`);
    const run = startAgent(directory, ['--drain-before', '29s'], job);
    expect(await run.exit).toBe(0);
    expect(run.tunnel.states).toEqual(['JOIN', 'DOWN', 'LEFT']);
    expect(run.stderr.text).toContain('the job ends in');
  });

  it('does not drain when the limit was raised meanwhile', async () => {
    const directory = scratch();
    const soon = new Date(Date.now() + 30_000).toISOString().slice(0, 19);
    const asked = join(directory, 'asked');
    fakeTool(directory, 'squeue', `[ -e ${asked} ] && echo 2099-01-01T00:00:00 || echo ${soon}; touch ${asked}`);
    const run = startAgent(directory, ['--drain-before', '28s'], job);
    await run.until(() => run.tunnels[0]?.latest?.job?.ends_at?.startsWith('2099') ?? false);
    expect(run.tunnel.latest?.state).toBe('JOIN');
    rmSync(asked);
  });

  it('registers one session with all GPUs on rank 0 of an engine over two nodes', async () => {
    const directory = scratch();
    fakeTool(directory, 'nvidia-smi', '[ "$1" = -L ] || echo "0, GPU-1, NVIDIA GH200 120GB, 97871"');
    const port = await freePort();
    const run = startAgent(directory, ['--', ...engineCommand(port, '--nnodes', '2', '--node-rank', '0')], job);
    await run.state('SERVING');
    expect(run.tunnel.latest?.hardware.gpus).toEqual([
      { class: 'GH200', name: 'NVIDIA GH200 120GB', vram_mib: 97_871, count: 2 },
    ]);
  });

  it('supervises without a session on rank 1, and shows its engine’s death in the exit code', async () => {
    const args = ['--', NODE, '-e', 'setTimeout(() => process.exit(4), 200)', '--', '--nnodes=2', '--node-rank=1'];
    const run = startAgent(scratch(), args, job);
    expect(await run.exit).toBe(70);
    expect(run.tunnels).toHaveLength(0);
    expect(run.stderr.text).toContain('rank 0 registers');
  });

  it('keeps its part of the engine on rank 1 while rank 0 drains', async () => {
    const args = ['--drain-timeout', '200ms', '--span-nodes', '--', NODE, '-e', `console.log('up'); ${FOR_EVER}`];
    const run = startAgent(scratch(), args, { ...job, SLURM_PROCID: '1', SLURM_STEP_NUM_NODES: '2' });
    await run.until(() => run.stdout.text.includes('up'));
    const before = performance.now();
    run.signal('SIGTERM');
    expect(await run.exit).toBe(143);
    expect(performance.now() - before).toBeGreaterThanOrEqual(190);
  });
});
