import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { SETTINGS } from '../../../agent/config/all-settings.ts';
import { LIMIT_SETTINGS } from '../../../agent/config/engine-config.ts';
import { startEngine } from '../../support/engine.ts';
import { runToEnd, scratch, startAgent, userEnv } from '../support/harness.ts';
import { settingsOf } from '../support/settings.ts';

const GATEWAY = ['--gateway', 'https://gw.example.org'];

/** The message of `otela-agent start` about wrong use. */
async function refused(args: string[], more: Record<string, string> = {}) {
  const { code, err } = await runToEnd(['start', ...args], userEnv(scratch(), { OTELA_TOKEN: 't', ...more }));
  expect(code).toBe(2);
  return err;
}

async function config(directory: string, args: string[], more: Record<string, string> = {}) {
  const { code, out, err } = await runToEnd(['config', '--json', ...args], userEnv(directory, more));
  expect(code, err).toBe(0);
  const rows: { name: string; value: string | null; source: string }[] = JSON.parse(out);
  return { err, row: (name: string) => rows.find((row) => row.name === name) };
}

describe('the command line', () => {
  it.each([
    ['an unknown flag, naming the nearest', ['--gatway', 'x'], 'did you mean --gateway?'],
    ['a flag without its value', ['--cluster'], '--cluster needs a value'],
    ['-- taken for a value', ['--cluster', '--', 'vllm'], '--cluster needs a value'],
    ['a value for a switch', [...GATEWAY, '--span-nodes=maybe'], 'does not accept a value'],
    ['a command without --', ['vllm', 'serve', 'x'], 'otela-agent start -- vllm serve x'],
    ['an API without a translation', [...GATEWAY, '--translate', 'chat'], 'is not one of messages, responses'],
    ['nothing after --', [...GATEWAY, '--'], 'no command after --'],
    ['an empty command, as from an unset variable', [...GATEWAY, '--', ''], 'is a variable in the script not set?'],
    [
      'a quoted command with more arguments',
      [...GATEWAY, '--process', 'vllm serve x', '--port', '1'],
      'separate words',
    ],
    ['a gateway is missing', [], 'a gateway is missing'],
    ['a gateway that is no address', ['--gateway', 'ftp://x'], 'not an address'],
    ['a gateway with a password', ['--gateway', 'https://u:secret@x'], 'shows in logs'],
    ['a cluster that is no id', [...GATEWAY, '--cluster', 'Alps_1'], 'lower-case'],
    ['a tier that is none', [...GATEWAY, '--tier', 'gold'], 'neither stable nor volatile'],
    ['a duration without a unit', [...GATEWAY, '--drain-before', '60'], 'write 60s or 60m'],
    ['a duration that setTimeout cannot hold', [...GATEWAY, '--drain-before', '90d'], 'longer than 24 days'],
    ['a port that is none', [...GATEWAY, '--engine-port', '70000', '--', 'x'], 'not a port'],
    ['an engine whose port nobody can know', [...GATEWAY, '--', 'my-server'], 'give --engine-port N'],
    ['a port that is still a variable', [...GATEWAY, '--', 'vllm serve x --port $PORT'], 'is not a number'],
    ['two addresses of the engine', [...GATEWAY, '--engine-port', '1', '--engine-url', 'http://x'], 'give only one'],
    ['an engine address that is none', [...GATEWAY, '--engine-url', 'localhost:8000'], 'not an http'],
    ['a fact with an unknown key', [...GATEWAY, '--fact', 'size=8b'], 'the keys are context'],
    ['a fact that is no number', [...GATEWAY, '--fact', 'context=32k'], 'not a value for context'],
    ['a label without a value', [...GATEWAY, '--label', 'x'], 'KEY=VALUE'],
    [
      'an environment for what deployments start',
      [...GATEWAY, '--environment', 'dir:/env.tar', '--accept-deployments', '/nowhere'],
      '--environment does not apply to programs',
    ],
    ['a token file that is not there', [...GATEWAY, '--token-file', '/nowhere'], 'cannot read /nowhere'],
  ])('refuses %s with 2', async (_what, args, said) => {
    expect(await refused(args)).toContain(said);
  });

  it('refuses labels beyond the registry’s bound', async () => {
    const many = Array.from({ length: 33 }, (_, i) => ['--label', `k${i}=v`]).flat();
    expect(await refused([...GATEWAY, ...many])).toContain('at most 32');
    const long = Array.from({ length: 20 }, (_, i) => ['--label', `k${i}=${'v'.repeat(250)}`]).flat();
    expect(await refused([...GATEWAY, ...long])).toContain('1 KiB');
  });

  it('refuses a token with a line break inside: it would end the header it travels in', async () => {
    expect(await refused(GATEWAY, { OTELA_TOKEN: 'a\nx-evil: 1' })).toContain('not one word');
  });

  it.each([
    ['of two lines', 'two\nlines'],
    ['that is no ASCII', 'kéy'],
    ['of two words', 'two words'],
    ['of nothing', ' '],
    ['that is longer than a header', 'x'.repeat(4097)],
  ])('refuses an engine’s key %s', async (_what, key) => {
    const args = [...GATEWAY, '--engine-url', 'http://127.0.0.1:1'];
    expect(await refused(args, { OTELA_ENGINE_KEY: key })).toContain('the engine’s key is not one word');
    const file = join(scratch(), 'key');
    writeFileSync(file, `${key}\n`, { mode: 0o600 });
    const said = key === ' ' ? 'is empty' : 'the engine’s key is not one word';
    const err = await refused([...args, '--engine-key-file', file]);
    expect(err).toContain(said);
    expect(err).not.toContain('kéy');
  });

  it('takes the engine’s key without the white space around it', async () => {
    const engine = await startEngine({ apiKey: 'engine-secret' });
    onTestFinished(() => engine.close());
    const more = { OTELA_ENGINE_KEY: ' engine-secret\r\n' };
    const run = startAgent(scratch(), ['--engine-url', engine.url], more);
    await run.state('SERVING');
    expect(run.tunnel.options.engine()?.key).toBe('engine-secret');
  });

  it('refuses a missing token', async () => {
    expect(await refused(GATEWAY, { OTELA_TOKEN: '' })).toContain('a join token is missing');
  });

  it('refuses a proxy it cannot use', async () => {
    expect(await refused(GATEWAY, { HTTPS_PROXY: 'socks5://p:1' })).toContain('socks5');
  });

  it('names the nearest command', async () => {
    const { code, err } = await runToEnd(['strat'], userEnv(scratch()));
    expect(code).toBe(2);
    expect(err).toContain('did you mean start?');
  });

  it.each([['help'], ['--help'], ['start', '--help'], ['drain', '-h'], ['config', '--help']])(
    'helps with %s %s',
    async (...argv) => {
      const { code, out } = await runToEnd(
        argv.filter((word) => word !== undefined),
        userEnv(scratch()),
      );
      expect(code).toBe(0);
      expect(out).toContain('otela-agent');
    },
  );

  it('leaves --help after -- to the engine', async () => {
    const { err } = await runToEnd(['start', '--', 'vllm', 'serve', '--help'], userEnv(scratch()));
    expect(err).toContain('a gateway is missing');
  });
});

describe('settings', () => {
  it('come from the file, over it the environment, over that the flags, and tell which', async () => {
    const directory = scratch();
    const file = join(directory, 'config');
    writeFileSync(file, '# ours\n\ntier = stable\nregion=eu\n  cluster =  alps \nlabel = a=b\nlabel = c=d\n');
    const { row } = await config(directory, ['--config', file, '--cluster', 'flagged'], { OTELA_REGION: 'env' });
    expect(row('tier')).toEqual({ name: 'tier', value: 'stable', source: `${file}:3` });
    expect(row('region')).toEqual({ name: 'region', value: 'env', source: 'OTELA_REGION' });
    expect(row('cluster')).toEqual({ name: 'cluster', value: 'flagged', source: '--cluster' });
    expect(row('label')?.value).toBe('a=b, c=d');
    expect(row('drain-before')?.source).toContain('default');
  });

  it('are read from ~/.config/otela-agent/config without being asked', async () => {
    const directory = scratch();
    const home = join(directory, 'home/.config/otela-agent');
    mkdirSync(home, { recursive: true });
    writeFileSync(join(home, 'config'), 'tier = stable\n');
    expect((await config(directory, [])).row('tier')?.value).toBe('stable');
  });

  it.each([
    ['engine-port = 8000', ['--engine-url', 'http://127.0.0.1:1/flagged'], {}, '127.0.0.1:1/flagged/v1/models'],
    ['engine-url = http://127.0.0.1:1/filed', ['--engine-port', '2'], {}, '127.0.0.1:2/v1/models'],
    ['engine-url = http://127.0.0.1:1', [], { OTELA_ENGINE_PORT: '2' }, '127.0.0.1:2/v1/models'],
    ['engine-port = none', ['--engine-url', 'http://127.0.0.1:1/flagged'], {}, '127.0.0.1:1/flagged/v1/models'],
    ['accept-deployments = /nonexistent', ['--engine-url', 'http://127.0.0.1:1'], {}, '127.0.0.1:1/v1/models'],
    ['accept-deployments = /nonexistent', [], { OTELA_ENGINE_PORT: '2' }, '127.0.0.1:2/v1/models'],
    ['accept-deployments = /nonexistent', ['--engine-port', '3', '--', 'sh'], {}, 'found sh'],
    ['engine-url = http://127.0.0.1:1', ['--accept-deployments', 'HERE'], {}, 'the agent would join idle'],
    ['engine-url = x', ['--accept-deployments', 'HERE'], { OTELA_ENGINE_PORT: 'x' }, 'the agent would join idle'],
  ])('of the file, %s, give way to %j and %j, which exclude them', async (line, args, more, said) => {
    const directory = scratch();
    const file = join(directory, 'config');
    writeFileSync(file, `${line}\n`);
    const templates = join(directory, 'templates');
    mkdirSync(templates, { mode: 0o700 });
    writeFileSync(join(templates, 'one.json'), JSON.stringify({ argv: ['vllm'], port: 8000 }), { mode: 0o600 });
    const given = ['--config', file, ...args.map((arg) => (arg === 'HERE' ? templates : arg))];
    const env = userEnv(directory, { OTELA_TOKEN: 't', OTELA_GATEWAY: 'http://127.0.0.1:1', ...more });
    // `doctor` reports what the agent would do with these settings.
    const { out, err } = await runToEnd(['doctor', '--json', ...given], env);
    expect(out, err).toContain(said);
  });

  it.each([
    ['engine-port = 8000\nengine-url = http://x', [], "both set the engine's address"],
    ['accept-deployments = /x\nengine-port = 8000', [], '--accept-deployments and --engine-port both set which engine'],
    [
      '',
      ['--accept-deployments', '/x', '--engine-url', 'http://x'],
      '--accept-deployments and --engine-url both set which engine',
    ],
    ['', ['--accept-deployments', '/x', '--', 'sh'], '--accept-deployments and a command both set which engine'],
  ])('are refused where two from one place exclude each other: %j and %j', async (lines, args, said) => {
    const directory = scratch();
    const file = join(directory, 'config');
    writeFileSync(file, `${lines}\n`);
    expect(await refused([...GATEWAY, '--config', file, ...args])).toContain(said);
  });

  it('take the engine’s key from the variable, over a file that the configuration file names', async () => {
    const directory = scratch();
    const file = join(directory, 'config');
    writeFileSync(file, 'engine-key-file = /nonexistent\n');
    const engine = await startEngine({ apiKey: 'engine-secret' });
    onTestFinished(() => engine.close());
    const args = ['--config', file, '--engine-url', engine.url];
    const run = startAgent(directory, args, { OTELA_ENGINE_KEY: 'engine-secret' });
    await run.state('SERVING');
  });

  it('never show a secret', async () => {
    const args = ['--token', 'secret-1'];
    const { code, out, err } = await runToEnd(
      ['config', ...args],
      userEnv(scratch(), { OTELA_ENGINE_KEY: 'secret-2' }),
    );
    expect(code).toBe(0);
    expect(out + err).not.toMatch(/secret-\d/);
    expect(out).toMatch(/token +\(set\) +--token/);
  });

  it('point at the line and the nearest name of a wrong file', async () => {
    const directory = scratch();
    const file = join(directory, 'config');
    writeFileSync(file, 'tier = stable\ngatway = x\n');
    const { code, err } = await runToEnd(['config', '--config', file], userEnv(directory));
    expect(code).toBe(2);
    expect(err).toContain(`${file}:2: unknown setting "gatway"; did you mean "gateway"?`);
  });

  it('warn about a variable that is nearly one', async () => {
    expect((await config(scratch(), [], { OTELA_GATEWY: 'x' })).err).toContain('did you mean OTELA_GATEWAY?');
  });

  it('say nothing about a variable that the pages have in each terminal', async () => {
    expect((await config(scratch(), [], { OTELA_RELEASE: 'file:///srv/release' })).err).not.toContain('OTELA_RELEASE');
  });

  it('take a list of gateways by commas and repetition, each once', async () => {
    const run = startAgent(scratch(), [
      '--gateway',
      'http://127.0.0.1:1,http://127.0.0.1:2',
      '--gateway',
      'http://127.0.0.1:1',
    ]);
    await run.until(() => run.tunnels.length === 2 && run.tunnels.every(({ latest }) => latest !== undefined));
    expect(run.tunnels.map(({ options }) => options.gateway.href)).toEqual([
      'http://127.0.0.1:1/',
      'http://127.0.0.1:2/',
    ]);
  });

  it.each([
    ['https://gw.example.org/v1', 'https://gw.example.org/'],
    ['gw.example.org/llm/v1/', 'https://gw.example.org/llm/'],
    ['https://gw.example.org/v1beta', 'https://gw.example.org/v1beta'],
  ])('take the address of an OpenAI client for the gateway’s: %s', async (given, wanted) => {
    const run = startAgent(scratch(), ['--gateway', given]);
    await run.state('JOIN');
    expect(run.tunnel.options.gateway.href).toBe(wanted);
  });

  it('take a gateway without a scheme for https', async () => {
    const run = startAgent(scratch(), ['--gateway', 'gw.example.org']);
    await run.state('JOIN');
    expect(run.tunnel.options.gateway.href).toBe('https://gw.example.org/');
  });
});

describe('a row', () => {
  it('has a variable and a flag that no other row has', () => {
    const names = SETTINGS.flatMap(({ env, flag }) => (flag === '' ? [env] : [env, flag]));
    expect(new Set(names).size).toBe(names.length);
  });

  it('has a default that passes its parser', () => {
    const context = { source: 'a test', env: {}, warn: () => undefined };
    for (const setting of SETTINGS) expect(() => setting.parse(undefined, context), setting.env).not.toThrow('is not');
    expect(settingsOf({}).read(LIMIT_SETTINGS)).toEqual({ maxRunning: undefined, maxWaiting: 8 });
    expect(settingsOf({ 'max-waiting': ['none'] }).read(LIMIT_SETTINGS).maxWaiting).toBeUndefined();
  });
});

describe('the token', () => {
  it('is read from a file, without its newline, and a file open to others is warned about', async () => {
    const directory = scratch();
    const file = join(directory, 'token');
    writeFileSync(file, 'from-file\n', { mode: 0o644 });
    const run = startAgent(directory, ['--token-file', file], { OTELA_TOKEN: 'from-env' });
    await run.state('JOIN');
    expect(run.admissions[0]?.token).toBe('from-file');
    expect(run.stderr.text).toContain(`chmod 600 ${file}`);
  });

  it('in a private file is not warned about', async () => {
    const directory = scratch();
    const file = join(directory, 'token');
    writeFileSync(file, 'from-file');
    chmodSync(file, 0o600);
    const run = startAgent(directory, ['--token-file', file]);
    await run.state('JOIN');
    expect(run.stderr.text).not.toContain('warning');
  });

  it('as a flag works, warns that it shows in ps, and is not repeated', async () => {
    const run = startAgent(scratch(), ['--token', 'flag-secret']);
    await run.state('JOIN');
    expect(run.admissions[0]?.token).toBe('flag-secret');
    expect(run.stderr.text).toContain('ps');
    expect(run.stderr.text).not.toContain('flag-secret');
  });

  it('over an unencrypted way to another machine is warned about', async () => {
    const run = startAgent(scratch(), ['--gateway', 'http://gw.example.org']);
    await run.state('JOIN');
    expect(run.stderr.text).toContain('not encrypted');
  });
});
