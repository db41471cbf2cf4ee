/** The engine as the agent's child: its inputs, its outputs and its failures. */
import { describe, expect, it, onTestFinished } from 'vitest';
import { startEngine } from '../../support/engine.ts';
import { freePort } from '../../support/processes.ts';
import {
  engineCommand,
  FOR_EVER,
  fakeTool,
  NODE,
  processRuns,
  runToEnd,
  scratch,
  scriptedEngine,
  startAgent,
  userEnv,
} from '../support/harness.ts';

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
    // Exported shell functions: clusters provide `module` this way.
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
    // `perl` has no handler, like most engines; node opens its inspector on SIGUSR1.
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
      scriptedEngine(`const all = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
        process.stdout.write(Buffer.concat(Array(4096).fill(all)), () => process.stderr.write(all));`),
    );
    await run.exit;
    const all = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
    expect(run.stdout.bytes.equals(Buffer.concat(Array(4096).fill(all)))).toBe(true);
    expect(run.stderr.bytes.includes(all)).toBe(true);
  });
});

describe('an engine that fails', () => {
  it('is down and has left at once, shows in the exit code, and its last words are repeated', async () => {
    const port = await freePort();
    const directory = scratch();
    const run = startAgent(directory, ['--', ...engineCommand(port)]);
    await run.state('SERVING');
    const [{ engine }] = JSON.parse((await runToEnd(['status', '--json'], userEnv(directory))).out);
    process.kill(engine.pid, 'SIGUSR2');
    expect(await run.exit).toBe(70);
    expect(run.tunnel.states).toEqual(['JOIN', 'SERVING', 'DOWN', 'LEFT']);
    expect(run.stderr.text).toContain('the engine ended with code 3');
    expect(run.stderr.text).toContain(`stand-in engine ready http://127.0.0.1:${port}`);
  });

  it('is reported with its signal', async () => {
    const run = startAgent(scratch(), scriptedEngine('process.kill(process.pid, "SIGSEGV")'));
    expect(await run.exit).toBe(70);
    expect(run.stderr.text).toContain('ended by SIGSEGV');
  });

  it('that ends with 0 without being asked has failed as well', async () => {
    expect(await startAgent(scratch(), scriptedEngine('')).exit).toBe(70);
  });

  it('that does not exist is a clear line and 70', async () => {
    const run = startAgent(scratch(), ['--engine-port', '9', '--', 'no-such-engine']);
    expect(await run.exit).toBe(70);
    expect(run.stderr.text).toContain('could not be started: there is no command "no-such-engine" on the PATH');
  });

  it('ends its other processes too', async () => {
    const run = startAgent(
      scratch(),
      scriptedEngine(`const worker = require('node:child_process').spawn(process.execPath, ['-e', '${FOR_EVER}'], { stdio: 'ignore' });
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
      scriptedEngine(
        `process.on('SIGTERM', () => console.log('ignored')); ${FOR_EVER} console.log('pid', process.pid);`,
      ),
      { SLURM_JOB_ID: '1' },
    );
    await run.until(() => run.stdout.text.includes('pid ') && run.tunnels.length > 0);
    run.signal('SIGTERM');
    expect(await run.exit).toBe(143);
    expect(run.stdout.text).toContain('ignored');
    expect(processRuns(Number(/pid (\d+)/.exec(run.stdout.text)?.[1]))).toBe(false);
  });

  it('is not waited for when it has died of the same scancel that ends the agent', async () => {
    const run = startAgent(scratch(), scriptedEngine(`console.log('pid', process.pid); ${FOR_EVER}`));
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
