/** The engine of a deployment, as a process: it drains, fails, hangs or breaks, and the agent continues. */
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { DeploymentRequest } from '../../../shared/deployment/deployment-order.ts';
import type { DeploymentAnswer } from '../../../shared/deployment/order-reply.ts';
import { order } from '../support/fake-admission.ts';
import type { FakeTunnel } from '../support/fake-tunnel.ts';
import { engineCommand, NODE, processRuns, type Run, scratch, startAgent } from '../support/harness.ts';

const MODEL = { model: { type: 'string', allow: ['org/*'] } };
const command = ['sh', '-c', 'echo "engine pid $$"; exec "$0" "$@"', ...engineCommand(0).slice(0, -1), '{{port}}'];
const TEMPLATES = {
  good: { argv: [...command, '--model', '{{model}}'], parameters: MODEL },
  hangs: { argv: [NODE, '-e', 'setInterval(() => {}, 1e6)', '{{port}}'], ready_within_s: 1 },
  breaks: {
    argv: ['sh', '-c', 'echo "CUDA error: an illegal memory access was encountered"; sleep 60', '{{port}}'],
  },
};

/** An agent that waits for orders. */
function idleAgent(more: string[] = []): Run {
  const directory = scratch();
  const templates = join(directory, 'templates');
  mkdirSync(templates, { mode: 0o755 });
  for (const [name, template] of Object.entries(TEMPLATES))
    writeFileSync(join(templates, `${name}.json`), JSON.stringify(template), { mode: 0o644 });
  return startAgent(directory, ['--accept-deployments', templates, ...more]);
}

const labels = (tunnel: FakeTunnel | undefined) => tunnel?.latest?.labels ?? {};
const accepts = (run: Run, sessions: number) =>
  run.until(() => run.tunnels.length >= sessions && labels(run.tunnels.at(-1))['otela.accepts'] !== undefined);

/** Sends an order, as the gateway of that session's tunnel would. */
async function say(tunnel: FakeTunnel | undefined, wish: DeploymentRequest): Promise<DeploymentAnswer> {
  const reply = await tunnel?.options.order?.(order(tunnel.options.identity.session, wish));
  if (reply === undefined) throw new Error('this agent does not accept orders');
  reply.act?.();
  return reply.answer;
}

const start = (template: string): DeploymentRequest => ({
  action: 'start',
  id: `dep-${template}`,
  template,
  parameters: template === 'good' ? { model: 'org/m' } : {},
});

it('a deployment that is ended drains first: what runs is answered, what is new goes elsewhere, then the engine ends', async () => {
  const run = idleAgent();
  await accepts(run, 1);
  const [first] = run.tunnels;
  expect(await say(first, start('good'))).toMatchObject({ kind: 'accepted', deployment: { state: 'starting' } });
  await run.until(() => run.tunnels[1]?.latest?.state === 'SERVING');
  const second = run.tunnels[1];
  expect(first?.states.at(-1)).toBe('LEFT');
  expect(second?.latest?.models).toMatchObject([{ id: 'org/m', state: 'ready' }]);
  // The session that got the order has ended: an order to it is refused.
  expect(await say(first, start('good'))).toMatchObject({ kind: 'refused', code: 'wrong_session' });

  const pid = Number(/engine pid (\d+)/.exec(run.stdout.text)?.[1]);
  if (second) second.inFlight = 1;
  await say(second, { action: 'stop', id: 'dep-good', drain_ms: 60_000 });
  await run.until(() => second?.latest?.state === 'DOWN' && second.calls.includes('drain'));
  expect(processRuns(pid)).toBe(true);
  await run.until(() => run.tunnels.length === 3);
  expect(labels(run.tunnels[2])).toEqual({}); // not yet
  if (second) second.inFlight = 0;
  await accepts(run, 3);
  expect(processRuns(pid)).toBe(false);
  expect(second?.states.at(-1)).toBe('LEFT');
  expect(run.tunnels[2]?.latest).toMatchObject({ state: 'JOIN', models: [] });
});

it('an engine that serves nothing in time, or that is broken, ends its session and not the agent', async () => {
  const run = idleAgent();
  await accepts(run, 1);
  await say(run.tunnels[0], start('hangs'));
  await accepts(run, 3);
  expect(labels(run.tunnels[2])['otela.deployment-failed']).toBe('dep-hangs it served no model within 1s');
  await say(run.tunnels[2], start('breaks'));
  await run.until(() => labels(run.tunnels.at(-1))['otela.deployment-failed']?.startsWith('dep-breaks') ?? false);
  expect(labels(run.tunnels.at(-1))['otela.deployment-failed']).toMatch(/^dep-breaks it is broken: .*CUDA error/);
});

it('an agent that is told to leave takes its deployment with it', async () => {
  const run = idleAgent();
  await accepts(run, 1);
  await say(run.tunnels[0], start('good'));
  await run.until(() => run.tunnels[1]?.latest?.state === 'SERVING');
  run.signal('SIGTERM');
  expect(await run.exit).toBe(143);
  expect(run.tunnels[1]?.states.at(-1)).toBe('LEFT');
  expect(run.tunnels.length).toBe(2);
});

it('an agent is not started with templates that others could have written, or that make no sense', async () => {
  const directory = scratch();
  const refused = async (name: string, template: object | undefined, mode = 0o644, ...more: string[]) => {
    const templates = join(directory, name);
    mkdirSync(templates);
    if (template) writeFileSync(join(templates, 'a.json'), JSON.stringify(template));
    if (template) chmodSync(join(templates, 'a.json'), mode);
    const run = startAgent(directory, ['--accept-deployments', templates, ...more]);
    return `${await run.exit} ${run.stderr.text}`;
  };
  const { good } = TEMPLATES;
  expect(await refused('open', good, 0o666)).toMatch(/^2 .*other users can write.*chmod go-w/s);
  const typo = { ...good, argv: ['vllm', '{{modle}}', '{{port}}'] };
  expect(await refused('typo', typo)).toMatch(/^2 .*\{\{modle\}\}/s);
  expect(await refused('empty', undefined)).toMatch(/^2 .*contains no template/s);
  expect(await refused('both', good, 0o644, '--engine-port', '8000')).toMatch(/^2 .*--engine-port/s);
  const weighed = { ...good, weights: 'dir:/models' };
  expect(await refused('weights', weighed)).toMatch(/^2 .*the template a copies weights: add --weights-dir/s);
  expect(await refused('label', good, 0o644, '--label', 'otela.accepts=all')).toMatch(/^2 .*is reserved/s);
});
