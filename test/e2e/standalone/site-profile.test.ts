/** The profile of a cluster goes from its operator to a job script by the join token. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { main } from '../../../agent/cli/main.ts';
import { Gateway } from '../../support/gateway.ts';
import { endAll } from '../../support/processes.ts';

const SITE = {
  partition: 'gpu',
  account: 'proj12',
  gpu_type: 'a100',
  gpu_memory_gib: 80,
  modules: ['cuda/12.4', 'python'],
  scratch: '/scratch/$USER',
  proxy: 'http://proxy:3128',
  models: { 'org/special': { gpus: 3, time: '01:00:00', arguments: ['--max-model-len', '8192'] } },
};
let gateway: Gateway;
let token: string;
let home: string;
beforeAll(async () => {
  gateway = await Gateway.start();
  token = await gateway.createJoinToken('lab', 'alps');
  home = mkdtempSync(join(tmpdir(), 'otela-home-'));
  mkdirSync(join(home, '.config/otela-agent'), { recursive: true });
});
afterAll(endAll);

async function sbatch(url: string, with_: string, ...args: string[]) {
  writeFileSync(join(home, '.config/otela-agent/config'), `gateway = ${url}\ntoken-file = ~/.otela-token\n`);
  writeFileSync(join(home, '.otela-token'), with_, { mode: 0o600 });
  const said = { out: '', err: '' };
  const sink = (to: keyof typeof said) =>
    new Writable({
      write(chunk, _encoding, done) {
        said[to] += String(chunk);
        done();
      },
    });
  const env = { PATH: process.env.PATH, HOME: home };
  const code = await main(['sbatch', ...args], env, { stdout: sink('out'), stderr: sink('err') });
  return { code, ...said };
}
const site = (bearer: string) =>
  fetch(`${gateway.url}/agent/site`, { headers: { authorization: `Bearer ${bearer}` } }).then(({ status }) => status);

it('the name of a model is enough for a script that fits the cluster', async () => {
  const without = await sbatch(gateway.url, token, '--model', 'Qwen/Qwen3-8B');
  expect([without.code, without.err]).toEqual([0, '']);
  expect(without.out).toContain('--gpus-per-node=1\n');
  await gateway.admin('PATCH', 'settings', { sites: { 'lab/alps': SITE, other: { partition: 'secret' } } });
  const { code, out, err } = await sbatch(gateway.url, token, '--model', 'meta-llama/Llama-3.3-70B-Instruct');
  expect([code, err]).toEqual([0, '']);
  for (const line of [
    '#SBATCH --gpus-per-node=a100:4',
    '#SBATCH --partition=gpu',
    '#SBATCH --account=proj12',
    'export HTTPS_PROXY=http://proxy:3128 HTTP_PROXY=http://proxy:3128 NO_PROXY=localhost,127.0.0.1',
    'module load cuda/12.4 python',
    'export HF_HOME="/scratch/$USER/huggingface"',
  ])
    expect(out.split('\n')).toContain(line);
  expect(out).toContain('--tensor-parallel-size 4');
  expect(spawnSync('bash', ['-n'], { input: out }).status).toBe(0);
  const special = await sbatch(
    gateway.url,
    token,
    '--model',
    'org/special',
    '--partition',
    'debug',
    '--',
    '--seed',
    '1',
  );
  expect(special.out).toContain('#SBATCH --partition=debug');
  expect(special.out).toContain('#SBATCH --gpus-per-node=a100:3');
  expect(special.out).toContain('--max-model-len 8192 --seed 1');
  const plain = await sbatch(gateway.url, token, '--model', 'org/special', '--no-site');
  expect(plain.out).not.toContain('--partition');
});

it('a token reads the profile of its cluster only; without a token, none is read', async () => {
  expect(await site(token)).toBe(200);
  expect(await site(await gateway.createJoinToken('psi', 'merlin'))).toBe(404);
  expect(await site('otela_join_guess')).toBe(401);
  expect(await site(await gateway.createKey())).toBe(401);
  const bad = gateway.admin('PATCH', 'settings', { sites: { lab: { modules: ['a; id'] } } });
  await expect(bad).rejects.toThrow('must be the name of a module');
});

it('a profile of a hostile gateway puts no command into the script', async () => {
  const answers: string[] = [
    JSON.stringify({ modules: ['x; touch /tmp/owned'] }),
    'not json',
    `{"a":"${'x'.repeat(300_000)}"}`,
  ];
  const server = createServer((_, response) => response.end(answers.shift()));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  for (const _ of [...answers]) {
    const { code, out, err } = await sbatch(url, token, '--model', 'm');
    expect([code, err]).toEqual([0, expect.stringContaining('profile of this cluster is not used')]);
    expect(out).not.toContain('module');
  }
  server.close();
});
