/** A user's Python script, a factory and a Slurm that is empty at first: no agent is started by hand. */
import { execFile } from 'node:child_process';
import { chmod, chown, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, expect, it } from 'vitest';
import { z } from 'zod';
import { Gateway } from '../support/gateway.ts';
import { patience } from '../support/patience.ts';
import { atEnd, endAll, eventually } from '../support/processes.ts';
import { NO_CLOUDPICKLE, PYTHON } from '../support/python-with-cloudpickle.ts';
import { ROOT } from '../support/where.ts';
import { Cluster, USER } from './cluster.ts';
import { factoryToml, startFactory } from './real-factory.ts';

afterAll(endAll);

const POOL = `name = "preempt-cancel"
gres = "a100"
gpus_per_node = 4
time = "10"
preemptable = true
options = ["nodelist=n1"]`;

/** Each call waits, so that the run outlives the preempted jobs. */
const SCRIPT = `
import time, uuid, opentela
def load():
    return uuid.uuid4().hex
@opentela.function(load=load, batch_size=2)
def squares(process, numbers):
    time.sleep(0.5)
    return [[number * number, process] for number in numbers]
if __name__ == "__main__":
    with opentela.Client() as client:
        found = list(client.map(squares, range(120)))
    assert [square for square, _ in found] == [number * number for number in range(120)], found
    print(len({process for _, process in found}))
`;

it('a script brings jobs that run its functions, outlives the preemption of half of them, and leaves none', async ({
  skip,
}) => {
  skip(NO_CLOUDPICKLE !== undefined, NO_CLOUDPICKLE);
  const gateway = await Gateway.start();
  const cluster = await Cluster.up();
  const project = await gateway.createProject('claims');
  const key = await gateway.createKey('claims', { project_id: project });
  const joinTokenFile = await cluster.secret('join-token', await gateway.createJoinToken('hpc', 'alps'));
  const made = await gateway.admin('POST', 'factory-tokens', { provider: 'hpc', name: 'pool' });
  const tokenFile = await cluster.secret('factory-token', z.object({ token: z.string() }).parse(made).token);
  await mkdir(join(cluster.directory, 'factory'), { mode: 0o700 });
  await chown(join(cluster.directory, 'factory'), USER.uid, USER.gid);
  const site = { directory: cluster.directory, gateway: gateway.url, name: 'pool', cluster: 'alps', launcher: 'slurm' };
  const whole = factoryToml({ ...site, tokenFile, joinTokenFile, pool: POOL, loadMs: 0, model: '' });
  const functions = `[recipes.python]
load = "5s"
[[recipes.python.engines]]
gpu = ["A100"]
gpus = 1
allow_functions = ["${project}"]
arguments = ["--functions-python", "/usr/bin/python3"]
[models."function:"]
recipe = "python"
max = 2
idle = "5s"
lines_per_job = 20
`;
  const config = join(cluster.directory, 'factory.toml');
  await writeFile(config, whole.slice(0, whole.indexOf('[recipes.stand-in]')) + functions);
  await chmod(config, 0o644);
  const factory = startFactory(cluster.directory, config, { ...cluster.userEnv, HOME: '/nonexistent', USER: 'nobody' });
  atEnd(() => factory.stop());
  const running = async () =>
    (await cluster.asked('squeue', '-h', '-t', 'RUNNING', '-o', '%i %j'))
      .split('\n')
      .filter((line) => line.includes(' otela-pool--'))
      .map((line) => line.split(' ')[0] ?? '');

  expect(cluster.command('squeue', '-h')).toBe('');
  const path = join(cluster.directory, 'squares.py');
  await writeFile(path, SCRIPT);
  const env = {
    PATH: process.env.PATH ?? '',
    PYTHONPATH: join(ROOT, 'clients/python'),
    PYTHONDONTWRITEBYTECODE: '1',
    OTELA_GATEWAY: gateway.url,
    OTELA_API_KEY: key,
  };
  const run = promisify(execFile)(PYTHON, [path], { env, timeout: patience(240_000) });
  const before = await eventually('two jobs run functions', 90_000, async () => {
    const now = await running();
    return now.length === 2 ? now : undefined;
  });
  // A job of a partition with a higher priority takes three of the node's four GPUs.
  const other = await cluster.submit({
    sbatch: ['--partition=normal', '--gres=gpu:a100:3', '-w', 'n1'],
    script: 'sleep 600',
  });
  await eventually('a job of the factory is preempted', 60_000, async () =>
    (await running()).filter((id) => before.includes(id)).length === 1 ? true : undefined,
  );
  other.cancel();
  const { stdout } = await run;
  expect(Number(stdout.trim())).toBeGreaterThan(1);
  await eventually('no job is left', 90_000, async () => ((await running()).length === 0 ? true : undefined));
});
