/**
 * The registry's view while Slurm preempts, kills and ends jobs: no dead node gets requests, and no live node is
 * excluded.
 */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { load } from '../support/load.ts';
import { endAll, eventually } from '../support/processes.ts';
import { MODEL, type TestCluster } from '../support/test-cluster.ts';
import type { Cluster, Job } from './cluster.ts';
import { openPlace } from './place.ts';

let house: TestCluster;
let cluster: Cluster;
let token: string;

beforeEach(async () => {
  ({ house, cluster, token } = await openPlace());
});
afterEach(endAll);

const line = (how: string) => cluster.agentLine(how, house.gateway.url, token, MODEL);

const nodesOf = async (jobs: readonly Job[]) => {
  const ids = new Set(jobs.map(({ id }) => id));
  return (await house.gateway.nodes()).filter(({ job }) => job !== undefined && ids.has(job.id));
};

const routable = async (jobs: readonly Job[]) =>
  (await nodesOf(jobs)).filter(({ state, suspected }) => state === 'SERVING' && !suspected);

async function allServe(jobs: readonly Job[], withinMs = 90_000): Promise<void> {
  await eventually(`${jobs.length} jobs serve`, withinMs, async () =>
    (await routable(jobs)).length === jobs.length ? true : undefined,
  ).catch(async (cause) => {
    throw new Error((await Promise.all(jobs.map((job) => job.output()))).join('\n---\n'), { cause });
  });
}

it('a quarter of the jobs is preempted at once: none of them is routed to, no other is touched, no request fails', async () => {
  const submit = async (node: string, gpu: string) =>
    cluster.submit({
      sbatch: ['--partition=preempt-cancel', `-w ${node}`, `--gres=gpu:${gpu}:1`],
      script: await line('exec'),
    });
  const victims = [await submit('n3', 'h100'), await submit('n3', 'h100')];
  const others: Job[] = [];
  for (const node of ['n1', 'n1', 'n1', 'n2', 'n2', 'n2']) others.push(await submit(node, 'a100'));
  await allServe([...victims, ...others]);
  const before = await nodesOf(others);
  const traffic = load(house, 4);
  const suspected = new Set<string>();
  let watching = true;
  const watch = (async () => {
    while (watching) {
      for (const node of await nodesOf(others))
        if (node.suspected || node.state !== 'SERVING') suspected.add(node.session);
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  })();
  await cluster.submit({ sbatch: ['--partition=normal', '-w n3', '--gres=gpu:h100:2'], script: 'sleep 20' });
  await eventually('the victims have left', 60_000, async () =>
    (await nodesOf(victims)).every(({ state }) => state === 'LEFT') ? true : undefined,
  );
  for (const victim of victims) await victim.reaches(['PREEMPTED'], 30_000);
  watching = false;
  await watch;
  await traffic.stop();
  expect(traffic.failures).toEqual([]);
  expect([...suspected]).toEqual([]);
  expect((await routable(others)).map(({ session }) => session).sort()).toEqual(
    before.map(({ session }) => session).sort(),
  );
});

/**
 * Others of its cluster, on other nodes: their reports end a silent session. Without them only its gateway could, after
 * minutes.
 */
async function companions(): Promise<Job[]> {
  const jobs: Job[] = [];
  for (const node of ['n1', 'n3', 'n4'])
    jobs.push(await cluster.submit({ sbatch: [`-w ${node}`], script: await line('exec') }));
  await allServe(jobs);
  return jobs;
}

it('an agent that stands still for longer than its grace comes back as a new session of the same job', async () => {
  const others = await companions();
  const script = `echo agent-pid $$\n${await line('exec')}`;
  const job = await cluster.submit({ sbatch: ['-w n2'], script });
  await allServe([job]);
  const [first] = await nodesOf([job]);
  const pid = Number(await eventually('its pid', 5_000, async () => /agent-pid (\d+)/.exec(await job.output())?.[1]));
  process.kill(pid, 'SIGSTOP');
  await eventually('it is LEFT', 200_000, async () =>
    (await nodesOf([job])).every(({ state }) => state === 'LEFT') ? true : undefined,
  ).finally(() => process.kill(pid, 'SIGCONT'));
  const [second] = await eventually('it is back', 30_000, async () => {
    const nodes = await routable([job]);
    return nodes.length > 0 ? nodes : undefined;
  });
  expect(second?.session).not.toBe(first?.session);
  expect(job.field('JobState')).toBe('RUNNING');
  expect(await routable(others)).toHaveLength(others.length);
});

it('an engine that breaks ends its job, and the next one has its GPUs', async () => {
  const broken = (await line('exec')).replace(
    "bash -c 'exec ",
    'bash -c \'(sleep 6; echo "RuntimeError: CUDA error: an illegal memory access was encountered" >&2) & exec ',
  );
  const job = await cluster.submit({ sbatch: ['-w n3', '--gres=gpu:h100:2', '--time=30'], script: broken });
  const waiting = await cluster.submit({ sbatch: ['-w n3', '--gres=gpu:h100:2'], script: await line('exec') });
  await allServe([job]);
  const traffic = load(house, 4);
  await job.reaches(['FAILED'], 40_000);
  expect(job.field('ExitCode')).toBe('70:0');
  const [node] = await eventually('it has left', 3_000, async () => {
    const nodes = await nodesOf([job]);
    return nodes.every(({ state }) => state === 'LEFT') ? nodes : undefined;
  });
  await allServe([waiting]);
  await traffic.stop();
  expect(traffic.failures).toEqual([]);
  // The gateway keeps its last output.
  const log = await fetch(`${house.gateway.url}/admin/nodes/${node?.session}/logs`, {
    headers: { authorization: `Bearer ${house.gateway.adminKey}` },
  });
  expect(await log.text()).toContain('an illegal memory access was encountered');
});
