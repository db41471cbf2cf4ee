/** `otela up` waits for its gateway and for the job's end at the same time. */
import { expect, it } from 'vitest';
import type { JobStatus } from '../../up/job/job-status.ts';
import { waitUntilServed } from '../../up/job/wait-until-served.ts';

const RUNNING: JobStatus = { kind: 'running', node: 'n1' };
const NEVER = new Promise<JobStatus>(() => {});

type Nodes = Awaited<ReturnType<Parameters<typeof waitUntilServed>[0]['gateway']['nodes']>>;
const node = (job: string, state: string, ...models: [id: string, state: string][]): Nodes[number] => ({
  session: `session-${job}`,
  state,
  models: models.map(([id, of]) => ({ id, state: of })),
  labels: { 'factory-job': `up/${job}` },
});

function waiting(nodes: Nodes[], statuses: Promise<JobStatus>[], signal = new AbortController().signal) {
  const told: string[] = [];
  const outcome = waitUntilServed({
    gateway: { nodes: async () => (nodes.length > 1 ? (nodes.shift() ?? []) : (nodes[0] ?? [])) },
    jobs: { status: async () => (statuses.length > 1 ? (statuses.shift() ?? NEVER) : (statuses[0] ?? NEVER)) },
    job: '7',
    cluster: 'up-x',
    model: 'm',
    onStatus: async ({ kind }) => void told.push(kind),
    signal,
  });
  return { outcome, told };
}

it('a model that is ready is found while the host has not answered', async () => {
  const steps = [
    [],
    [node('7', 'JOIN')],
    [node('7', 'SERVING', ['m', 'loading'])],
    [node('7', 'SERVING', ['m', 'ready'])],
  ];
  expect(await waiting(steps, [NEVER]).outcome).toEqual({ kind: 'served', model: 'm' });
});

it('the model of the command is preferred, and the node of another job does not count', async () => {
  const other = node('6', 'SERVING', ['m', 'ready']);
  const both = node('7', 'SERVING', ['adapter', 'ready'], ['m', 'ready']);
  expect(await waiting([[other], [other, both]], [Promise.resolve(RUNNING)]).outcome).toMatchObject({ model: 'm' });
  const renamed = node('7', 'SERVING', ['m.gguf', 'ready']);
  expect(await waiting([[renamed]], [NEVER]).outcome).toMatchObject({ model: 'm.gguf' });
});

it('the end of the job ends the wait, after its earlier status was shown', async () => {
  const ended: JobStatus = { kind: 'ended', state: 'FAILED' };
  const { outcome, told } = waiting([[]], [Promise.resolve(RUNNING), Promise.resolve(ended)]);
  expect(await outcome).toEqual({ kind: 'ended', state: 'FAILED' });
  expect(told).toEqual(['running']);
});

it('a host that cannot be asked and a signal end the wait with their reason', async () => {
  await expect(waiting([[]], [Promise.reject(new Error('no way'))]).outcome).rejects.toThrow('no way');
  const ends = new AbortController();
  const { outcome } = waiting([[]], [NEVER], ends.signal);
  ends.abort(new Error('Ctrl-C'));
  await expect(outcome).rejects.toThrow(/Ctrl-C|aborted/);
});
