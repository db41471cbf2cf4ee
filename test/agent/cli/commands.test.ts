/** What all commands have in common: unknown flags, help, JSON, and which agent is meant. */
import { describe, expect, it } from 'vitest';
import { freePort } from '../../support/processes.ts';
import { NODE, type Run, runToEnd, scratch, startAgent, userEnv } from '../support/harness.ts';

const sessionOf = (run: Run) => run.tunnel.options.identity.session;
/** Loads forever and prints its progress as vLLM does: in color, over the same line. */
const LOADING = `process.stdout.write('\\r\\u001b[36mLoading shards: 50%\\u001b[0m\\r\\u001b[36mLoading shards: 75%\\u001b[0m'); setInterval(() => {}, 1e6)`;

describe('words too many', () => {
  it.each([
    [['status', 'x'], 'unexpected argument "x"; to select an agent, write --session x'],
    [['models', 'x'], '--session x'],
    [['logs', 'x'], '--session x'],
    [['drain', 'x'], '--session x'],
    [['metrics', 'x'], '--session x'],
    [['status', '--', 'x'], 'this command accepts no command after --'],
    [['config', 'x'], 'unexpected argument "x"'],
    [['sbatch', 'x'], 'unexpected argument "x"'],
    [['doctor', 'vllm'], 'comes after --'],
    [['version', 'x'], 'unexpected argument "x"'],
    [['help', 'stats'], 'did you mean status'],
  ])('%j is refused', async (argv, words) => {
    const { code, err } = await runToEnd(argv, userEnv(scratch()));
    expect([code, err]).toEqual([2, expect.stringContaining(words)]);
  });

  it('"help COMMAND" is what "COMMAND --help" is', async () => {
    const env = userEnv(scratch());
    for (const command of ['start', 'drain', 'sbatch']) {
      const help = await runToEnd(['help', command], env);
      expect(help).toEqual(await runToEnd([command, '--help'], env));
      expect(help.out).toMatch(new RegExp(`^otela-agent ${command}`));
    }
  });
});

describe('an agent whose engine loads', () => {
  async function loading() {
    const directory = scratch();
    const run = startAgent(directory, ['--engine-port', `${await freePort()}`, '--', NODE, '-e', LOADING]);
    await run.until(() => run.stdout.text.includes('75%') && run.tunnels.length > 0);
    return { run, env: userEnv(directory) };
  }

  it('is shown with how long it has been waited for and the last line of the engine, as plain text', async () => {
    const { env } = await loading();
    const [status] = JSON.parse((await runToEnd(['status', '--json'], env)).out);
    expect(status.engine).toMatchObject({ answering: false, last_line: 'Loading shards: 75%' });
    expect(status.engine.waiting_s).toBeGreaterThanOrEqual(0);
    expect((await runToEnd(['status'], env)).out).toMatch(/not answering for \d+s .*\n {12}Loading shards: 75%\n/);
  });

  it('answers logs and metrics in JSON too, and another session than its own is not it', async () => {
    const { run, env } = await loading();
    const session = sessionOf(run);
    const lines = (await runToEnd(['logs', '--json'], env)).out.trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line)).at(-1)).toEqual({
      session,
      line: expect.stringContaining('Loading shards: 75%'),
    });
    const metrics = JSON.parse((await runToEnd(['metrics', '--json'], env)).out);
    expect(metrics).toEqual({ session, metrics: expect.stringContaining('# TYPE ') });
    for (const command of ['status', 'models', 'logs', 'drain'])
      expect(await runToEnd([command, '--session', 'zzz'], env)).toMatchObject({
        code: 2,
        out: '',
        err: expect.stringContaining(`begins with "zzz"; the sessions are ${session}`),
      });
    const gone = await runToEnd(['drain', '--wait', '--json', '--session', session.slice(0, 4)], env);
    expect(JSON.parse(gone.out)).toEqual({ session, state: 'left' });
    expect(await run.exit).toBe(0);
  });
});
