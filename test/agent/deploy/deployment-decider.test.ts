/**
 * An agent's reaction to orders, one after the other: the same order twice, two together, one that arrives while
 * another ends.
 */
import { readFileSync } from 'node:fs';
import { beforeEach, describe, expect, test } from 'vitest';
import { DeploymentDecider, type EngineRunner } from '../../../agent/deploy/deployment-decider.ts';
import {
  bindTemplate,
  type EngineLaunch,
  Templates,
  templateFrom,
} from '../../../agent/deploy/deployment-templates.ts';
import { OrderReceiver } from '../../../agent/deploy/order-receiver.ts';
import { nodeCrypto } from '../../../agent/host/node-crypto.ts';
import { DeploymentError } from '../../../shared/deployment/deployment-error.ts';
import { type DeploymentRequest, signOrder } from '../../../shared/deployment/deployment-order.ts';
import { errorText } from '../../../shared/text/error-text.ts';
import { institution, NOW_S, node } from '../../shared/lattice/house.ts';

const lab = institution();
const gateway = lab.gateway();
const VLLM = {
  argv: ['vllm', 'serve', '{{model}}', '--tensor-parallel-size={{ tp }}', '--port', '{{port}}'],
  parameters: { model: { type: 'string', allow: ['org/*'] }, tp: { type: 'integer', allow: [1, 2] } },
};
const vllm = templateFrom('vllm.json', 'vllm', VLLM);
const start = (id: string): DeploymentRequest => ({
  action: 'start',
  id,
  template: 'vllm',
  parameters: { model: 'org/m', tp: 2 },
});
const stop = (id: string): DeploymentRequest => ({ action: 'stop', id, drain_ms: 5 });

class Keeper implements EngineRunner {
  readonly done: string[] = [];
  launch: EngineLaunch | undefined;
  taken = false;
  ended = Promise.resolve();
  async port(wanted: number | undefined): Promise<number> {
    if (this.taken)
      throw new DeploymentError('cannot_start', 'another server already answers on port 8000 of this machine');
    return wanted ?? 41_000;
  }
  begin({ id }: { id: string }, launch: EngineLaunch): void {
    this.done.push(`begin ${id}`);
    this.launch = launch;
  }
  async end(_why: string, drainMs: number): Promise<void> {
    this.done.push(`end ${drainMs}`);
    await this.ended;
  }
  publish(): void {
    this.done.push('tell');
  }
}

describe('orders', () => {
  let keeper = new Keeper();
  let deployments: DeploymentDecider;
  let orders: OrderReceiver;
  let now = NOW_S;
  let nonce = 0;
  const { ticket, session } = node(gateway);
  const order = (wish: DeploymentRequest) => {
    const fields = {
      certificate: gateway.certificate,
      session,
      nonce: new Uint8Array(16).fill(++nonce),
      notAfter: now + 120,
      wish,
    };
    return signOrder(fields, gateway.signer);
  };
  /** Answers and acts, as a tunnel does. */
  const give = async (bytes: Uint8Array) => {
    const { answer, act } = await orders.answer(ticket, bytes);
    act?.();
    return answer.kind === 'refused' ? `${answer.code}: ${answer.message}` : answer.kind;
  };

  beforeEach(() => {
    keeper = new Keeper();
    now = NOW_S;
    deployments = new DeploymentDecider({
      templates: new Templates([vllm]),
      keeper,
      now: () => now * 1000,
      log: () => {},
    });
    orders = new OrderReceiver({
      deployments: () => deployments,
      changeModel: ({ action, model }) => {
        if (model !== 'm') throw new DeploymentError('unknown_model', `the engine serves no ${model}`);
        return {
          answer: { kind: 'model', model, state: 'loading' },
          act: () => keeper.done.push(`${action} ${model}`),
        };
      },
      drain: (why) => keeper.done.push(`drain: ${why}`),
      restart: async (version) => {
        if (version !== '0.2.0') throw new DeploymentError('cannot_start', `0.2.0 is installed, not ${version}`);
        return { from: '0.1.0', act: () => keeper.done.push(`restart as ${version}`) };
      },
      inspect: async () => ({ kind: 'inspected', log: 'loaded', gpus: null }),
      inFlight: () => 3,
      crypto: nodeCrypto,
      now: () => now * 1000,
      revoked: () => false,
      log: () => {},
    });
  });

  test('an order to load or unload is obeyed once, by its session only, and for a model that the engine serves', async () => {
    const load = order({ action: 'load', model: 'm' });
    const { answer, act } = await orders.answer(ticket, load);
    expect(answer).toEqual({ kind: 'model', model: 'm', state: 'loading' });
    act?.();
    expect(keeper.done).toEqual(['load m']);
    const refused = async (bytes: Uint8Array, to = ticket) => (await orders.answer(to, bytes)).answer;
    expect(await refused(load)).toMatchObject({ kind: 'refused', code: 'replayed' });
    const unload = { action: 'unload', model: 'm', sleep: 1, drain_ms: 0 } as const;
    const other = { ...ticket, session: 'b'.repeat(26) };
    expect(await refused(order(unload), other)).toMatchObject({ kind: 'refused', code: 'wrong_session' });
    for (const model of ['../../etc/passwd', 'http://evil.example/x'])
      expect(await refused(order({ ...unload, model }))).toMatchObject({ kind: 'refused', code: 'unknown_model' });
    expect(keeper.done).toEqual(['load m']);
  });

  test('an order to restart is obeyed where that version is installed, once', async () => {
    const restart = order({ action: 'restart', version: '0.2.0' });
    const { answer, act } = await orders.answer(ticket, restart);
    expect(answer).toEqual({ kind: 'restarting', running: 3, from: '0.1.0' });
    act?.();
    expect(keeper.done).toContain('restart as 0.2.0');
    expect(await give(restart)).toMatch(/^replayed/);
    expect(await give(order({ action: 'restart', version: '0.3.0' }))).toMatch(/^cannot_start/);
  });

  test('an order to inspect may come again and again, and leaves room for orders that matter', async () => {
    const inspect = order({ action: 'inspect' });
    for (let n = 0; n < 2_000; n++) expect(await give(inspect)).toBe('inspected');
    expect(await give(order({ action: 'drain' }))).toBe('draining');
    expect(
      await give(
        signOrder(
          {
            certificate: gateway.certificate,
            session,
            nonce: new Uint8Array(16),
            notAfter: now,
            wish: { action: 'inspect' },
          },
          gateway.signer,
        ),
      ),
      'an old one',
    ).toMatch(/^expired/);
  });

  test('an order starts the template’s command with its parameters as whole arguments, on a port of the agent’s', async () => {
    expect(await give(order(start('a')))).toBe('accepted');
    expect(keeper.done).toEqual(['begin a']);
    expect(keeper.launch?.argv).toEqual(['vllm', 'serve', 'org/m', '--tensor-parallel-size=2', '--port', '41000']);
    expect(deployments.labels).toEqual({ 'otela.deployment': 'a' });
  });

  test('an order to drain is obeyed once, with any deployment, and also if deployments are not accepted', async () => {
    const drain = order({ action: 'drain' });
    expect(await orders.answer(ticket, drain)).toMatchObject({ answer: { kind: 'draining', running: 3 } });
    expect(keeper.done, 'the answer goes first').toEqual([]);
    expect(await give(drain)).toMatch(/^replayed/);
    await give(order(start('a')));
    expect(await give(order({ action: 'drain' }))).toBe('draining');
    expect(keeper.done).toEqual(['begin a', 'drain: an order from its gateway']);
    expect((await orders.answer(node(gateway).ticket, order({ action: 'drain' }))).answer).toMatchObject({
      code: 'wrong_session',
    });
  });

  test('the same order does nothing a second time, whether it was obeyed or refused', async () => {
    const first = order(start('a'));
    const bad = order({ action: 'start', id: 'b', template: 'none', parameters: {} });
    expect(await give(bad)).toMatch(/^unknown_template/);
    expect(await give(bad)).toMatch(/^replayed/);
    await give(first);
    expect(await give(first)).toMatch(/^replayed/);
    // Also if the reason of the first refusal is gone: an operator's end of the deployment does not revive the old
    // order.
    const early = order(start('c'));
    expect(await give(early)).toMatch(/^busy/);
    await give(order(stop('a')));
    await deployments.failed('nothing runs', 0);
    expect(await give(early)).toMatch(/^replayed/);
    now += 121;
    expect(await give(early)).toMatch(/^expired/);
    expect(keeper.done.filter((one) => one.startsWith('begin'))).toEqual(['begin a']);
  });

  test('of two at once one is obeyed', async () => {
    const [one, two] = await Promise.all([give(order(start('a'))), give(order(start('b')))]);
    expect([one, two.replace(/:.*/, '')].sort()).toEqual(['accepted', 'busy']);
    expect(keeper.done).toHaveLength(1);
  });

  test('a node takes no new deployment before the old one has ended, and says so in the registry', async () => {
    await give(order(start('a')));
    deployments.running();
    expect(await give(order(start('b')))).toMatch(/^busy: deployment a runs here/);
    expect(await give(order(stop('b')))).toMatch(/^nothing_deployed: .*a does/);
    const { promise, resolve } = Promise.withResolvers<void>();
    keeper.ended = promise;
    expect(await give(order(stop('a')))).toBe('accepted');
    expect(deployments.labels).toEqual({});
    expect(await give(order(start('b')))).toMatch(/^busy: deployment a is still ending here/);
    expect(await give(order(stop('a')))).toBe('accepted'); // sent twice, done once
    resolve();
    await expect.poll(() => keeper.done).toEqual(['begin a', 'end 5', 'tell']);
    expect(deployments.labels).toEqual({ 'otela.accepts': 'vllm' });
    expect(await give(order(stop('a')))).toMatch(/^nothing_deployed/);
    expect(await give(order(start('b')))).toBe('accepted');
  });

  test('a failure is told until the next deployment, in one line of plain characters', async () => {
    await give(order(start('a')));
    await deployments.failed(`it is broken: \u001b[31mCUDA\n error ${'x'.repeat(600)}`, 0);
    const { 'otela.deployment-failed': failed = '', ...rest } = deployments.labels;
    expect(rest).toEqual({ 'otela.accepts': 'vllm' });
    expect(failed).toMatch(/^a it is broken: +\[31mCUDA +error x+$/);
    expect(failed.length).toBe(255);
    await give(order(start('b')));
    expect(deployments.labels).toEqual({ 'otela.deployment': 'b' });
  });

  test('a port that is taken refuses, and the next order is welcome', async () => {
    keeper.taken = true;
    expect(await give(order(start('a')))).toMatch(/^cannot_start: .*port 8000/);
    keeper.taken = false;
    expect(await give(order(start('a')))).toBe('accepted');
  });

  test('what is wrong is told by name: of the order, of the template, of each parameter', async () => {
    const wrong = (parameters: Record<string, string | number>) =>
      give(order({ action: 'start', id: 'a', template: 'vllm', parameters }));
    expect(await wrong({ model: 'other/m', size: 3 })).toBe(
      'bad_parameters: unknown parameter size (known: model, tp); model "other/m" is not allowed (allowed: org/*); tp is missing',
    );
    expect(await wrong({ model: 'org/m', tp: 3 })).toMatch(/3 is not allowed \(allowed: 1, 2\)/);
    expect(await wrong({ model: 'org/m', tp: 1.5 })).toMatch(/whole number/);
    for (const model of [
      'org/a b',
      'org/$(id)',
      'org/a;b',
      'org/`id`',
      '--trust-remote-code',
      'org/..',
      'org/a\nb',
      '',
    ])
      expect(await wrong({ model, tp: 1 })).toMatch(/^bad_parameters/);
    expect(await wrong(JSON.parse('{"__proto__x": 1}').x ?? { constructor: 'x', model: 'org/m', tp: 1 })).toMatch(
      /unknown parameter constructor/,
    );
    expect(keeper.done).toEqual([]);
  });
});

test('a template must say all that it needs, and nothing that would be left out', () => {
  const problem = (value: unknown) => {
    try {
      templateFrom('t.json', 't', value);
      return 'fine';
    } catch (error) {
      return errorText(error);
    }
  };
  expect(problem(VLLM)).toBe('fine');
  expect(problem({ ...VLLM, argv: ['{{model}}', '{{tp}}', '{{port}}'] })).toMatch(/program itself/);
  expect(problem({ ...VLLM, argv: ['vllm', '{{model}}', '{{port}}'] })).toMatch(/argv does not use the parameter tp/);
  expect(problem({ ...VLLM, argv: ['vllm', '{{model}}', '{{tp}}', '{{gpu}}', '{{port}}'] })).toMatch(
    /\{\{gpu\}\}.*model, tp, port/,
  );
  expect(problem({ ...VLLM, argv: ['vllm', '{{model}}', '{{tp}}'] })).toMatch(/needs a port/);
  expect(problem({ ...VLLM, argv: ['vllm', '{{model}}', '{{tp}}'], port: 8000 })).toBe('fine');
  expect(problem({ ...VLLM, shell: 'rm' })).toMatch(/shell/);
  expect(problem({ ...VLLM, parameters: { ...VLLM.parameters, tp: { type: 'integer' } } })).toMatch(/min.*max/);
  expect(
    problem({ ...VLLM, parameters: { ...VLLM.parameters, tp: { type: 'integer', allow: [1], default: 2 } } }),
  ).toMatch(/default/);
  expect(problem({ ...VLLM, parameters: { ...VLLM.parameters, model: { type: 'string', allow: ['*/x'] } } })).toMatch(
    /only at the end/,
  );
  expect(problem({ argv: ['x', '{{port}}'], parameters: { port: { type: 'integer', min: 1, max: 2 } } })).toMatch(
    /port/,
  );
  expect(bindTemplate(vllm, { model: 'org/m', tp: 1 }, 5).argv).toEqual([
    'vllm',
    'serve',
    'org/m',
    '--tensor-parallel-size=1',
    '--port',
    '5',
  ]);
});

test('a template can name weights, whose directory the agent fills in when they are on its node', () => {
  const weighed = {
    argv: ['vllm', 'serve', '{{weights}}', '--port', '{{port}}'],
    parameters: { model: { type: 'string', allow: ['org/*'] } },
    weights: 'hub:{{model}}',
  };
  const bound = (model: string, weights = weighed.weights) =>
    bindTemplate(templateFrom('w.json', 'w', { ...weighed, weights }), { model }, 5);
  expect(bound('org/m')).toMatchObject({
    argv: ['vllm', 'serve', '{{weights}}', '--port', '5'],
    weights: 'hub:org/m@main',
  });
  expect(bound('org/m', 'dir:/models/{{model}}')).toMatchObject({ weights: 'dir:/models/org/m' });
  expect(() => bound('org/a/b')).toThrow(/hub:org\/a\/b names no weights/);
  // A value leads to no other directory.
  expect(() => bound('org/../../etc', 'dir:/models/{{model}}')).toThrow(/\.\./);
  const problem = (value: object) => () => templateFrom('w.json', 'w', { ...weighed, ...value });
  expect(problem({ weights: 'hub:{{name}}' })).toThrow(/"weights" contains the unknown placeholder \{\{name\}\}/);
  expect(problem({ weights: 'dir:/{{weights}}' })).toThrow(/unknown placeholder/);
  expect(problem({ weights: undefined })).toThrow(/argv contains the unknown placeholder \{\{weights\}\}/);
  const twice = { model: weighed.parameters.model, weights: { type: 'string', allow: ['a'] } };
  expect(problem({ parameters: twice })).toThrow(/weights cannot be a parameter/);
  const templates = new Templates([vllm, templateFrom('w.json', 'w', weighed)]);
  expect([templates.copying, new Templates([vllm]).copying]).toEqual(['w', undefined]);
});

test('the example that the repository has is a template, for the planner too', () => {
  const path = new URL('../../../examples/deployments/vllm.json', import.meta.url);
  const example = templateFrom('vllm.json', 'vllm', JSON.parse(readFileSync(path, 'utf8')));
  expect(bindTemplate(example, { model: 'meta-llama/Llama-3.3-70B-Instruct', tp: 4 }, 8123).argv).toEqual(
    'vllm serve meta-llama/Llama-3.3-70B-Instruct --port 8123 --tensor-parallel-size 4 --max-model-len 32768'.split(
      ' ',
    ),
  );
});
