import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { main } from '../../../agent/cli/main.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'otela-sbatch-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

function sink(): Writable & { text: string } {
  const stream = Object.assign(
    new Writable({
      write(chunk, _encoding, done) {
        stream.text += String(chunk);
        done();
      },
    }),
    { text: '' },
  );
  return stream;
}

async function sbatch(args: string[], env: Record<string, string> = {}) {
  const [stdout, stderr] = [sink(), sink()];
  const all = { PATH: process.env.PATH ?? '', HOME: directory, ...env };
  const code = await main(['sbatch', ...args], all, { stdout, stderr });
  return { code, out: stdout.text, err: stderr.text };
}

it('prints a script for the gateway of the flags or of the environment', async () => {
  const printed = await sbatch(['--model', 'Qwen/Qwen3-8B', '--gpus', '2'], {
    OTELA_GATEWAY: 'https://gw.example.org',
  });
  expect(printed.code).toBe(0);
  expect(printed.out).toContain('export OTELA_GATEWAY=https://gw.example.org\n');
  expect(printed.out).toContain('#SBATCH --gpus-per-node=2\n');
  const asJson = await sbatch(['--model', 'm', '--gateway', 'https://other.example.org', '--json']);
  expect(JSON.parse(asJson.out).script).toContain('https://other.example.org');
});

it.each(['nvidia_rtx_pro_6000:2', '3090:2'])('asks Slurm for GPUs of a type as it was written: %s', async (gpus) => {
  const { code, out } = await sbatch(['--gateway', 'https://gw.example.org', '--model', 'm', '--gpus', gpus]);
  expect(code).toBe(0);
  expect(out).toContain(`#SBATCH --gpus-per-node=${gpus}\n`);
  expect(out).toContain('--tensor-parallel-size 2');
});

it('takes the options that a cluster asks for, others of sbatch, and the engine’s own flags', async () => {
  const place = ['--account', 'proj12', '--qos', 'high', '--constraint', 'a100|h100', '--mem', '64G', '--cpus', '16'];
  const more = ['--sbatch-option', 'reservation=maint', '--sbatch-option=--exclusive'];
  const { code, out } = await sbatch([
    ...['--gateway', 'https://gw.example.org', '--model', 'm', ...place, ...more],
    ...['--', '--max-model-len', '32768', '--hf-overrides', '{"a b": 1}'],
  ]);
  expect(code).toBe(0);
  const directives = out.split('\n').filter((line) => line.startsWith('#SBATCH --'));
  expect(directives).toEqual(
    expect.arrayContaining([
      '#SBATCH --account=proj12',
      '#SBATCH --qos=high',
      '#SBATCH --constraint=a100|h100',
      '#SBATCH --mem=64G',
      '#SBATCH --cpus-per-task=16',
      '#SBATCH --reservation=maint',
      '#SBATCH --exclusive',
    ]),
  );
  expect(out).toContain(` --max-model-len 32768 --hf-overrides '{"a b": 1}'\n`);
});

it('says what is missing or wrong', async () => {
  const gateway = ['--gateway', 'https://gw.example.org'];
  expect(await sbatch(['--model', 'm'])).toMatchObject({
    code: 2,
    err: expect.stringContaining('a gateway is missing'),
  });
  expect(await sbatch(gateway)).toMatchObject({ code: 2, err: expect.stringContaining('a model is missing') });
  const wrong: [string[], string][] = [
    [['--gpus', '0'], '--gpus'],
    [['--time', 'tomorrow'], '--time'],
    [['--engine', 'vlm'], 'not one of vllm, sglang'],
    [['--container', 'docker'], 'not one of none, apptainer, enroot'],
    [['--modell', 'x'], 'did you mean --model'],
    [['--partition', 'gpu b'], 'not the name of a partition'],
    [['--account', 'a"b'], 'not the name of an account'],
    [['--qos', 'x#y'], 'not the name of a QOS'],
    [['--constraint', 'a100 h100'], 'not one word'],
    [['--mem', '64 GB'], 'not an amount of memory'],
    [['--cpus', '0'], 'not a number of CPUs'],
    [['--sbatch-option', 'comment=a b'], 'not one word'],
    [['--sbatch-option', 'wrap="rm"'], 'not one word'],
    [['--', 'vllm', 'serve', 'm'], 'only flags of the engine'],
    [['--image', 'vllm.sif'], '--image needs --container'],
    [['--model=--trust-remote-code'], 'as a flag'],
    [['--model', 'm\n#SBATCH --uid=0'], 'control characters'],
    [['--gateway', 'gw example'], 'is not an address'],
    [['--gateway', 'ftp://gw.example.org'], 'is not an address'],
  ];
  for (const [flags, word] of wrong) {
    expect(await sbatch([...gateway, '--model', 'm', ...flags])).toMatchObject({
      code: 2,
      err: expect.stringContaining(word),
    });
  }
});

it('the token is read where the flags, the environment or the configuration file say, from whichever directory the job begins in', async () => {
  const ask = ['--model', 'm', '--gateway', 'https://gw.example.org'];
  const told = async (args: string[], env: Record<string, string> = {}) =>
    /^export OTELA_TOKEN_FILE=(.*)$/m.exec((await sbatch([...ask, ...args], env)).out)?.[1];
  expect(await told([])).toBe('$HOME/.otela-token');
  expect(await told([], { OTELA_TOKEN_FILE: '/secure/a token' })).toBe("'/secure/a token'");
  expect(await told(['--token-file', '~/my token'])).toBe("$HOME/'my token'");
  expect(await told(['--token-file', 'token'])).toBe(join(process.cwd(), 'token'));
  writeFileSync(join(directory, 'config'), 'token-file = ~/elsewhere\n');
  expect(await told(['--config', join(directory, 'config')])).toBe('$HOME/elsewhere');
});

it('hands the script to sbatch (a stand-in) and passes on what that says, or why it refuses', async () => {
  const program = join(directory, 'sbatch');
  const use = (body: string) => {
    writeFileSync(program, `#!/bin/bash\n${body}\n`);
    chmodSync(program, 0o755);
  };
  const env = { PATH: `${directory}:${process.env.PATH}`, OTELA_GATEWAY: 'https://gw.example.org' };
  use('grep -q "vllm serve m" && echo "sbatch: lua: 2 warnings" >&2 && echo "Submitted batch job 4711"');
  expect(await sbatch(['--model', 'm', '--submit'], env)).toMatchObject({
    code: 0,
    out: expect.stringContaining('Submitted batch job 4711\n'),
  });
  expect(JSON.parse((await sbatch(['--model', 'm', '--submit', '--json'], env)).out).job).toBe('4711');
  use('echo "sbatch: error: invalid partition specified: x" >&2; exit 1');
  expect(await sbatch(['--model', 'm', '--submit'], env)).toMatchObject({
    code: 70,
    err: expect.stringContaining('invalid partition'),
  });
  const without = await sbatch(['--model', 'm', '--submit'], { ...env, PATH: '/nowhere' });
  expect(without).toMatchObject({ code: 70, err: expect.stringContaining('login node') });
});
