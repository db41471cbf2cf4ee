/**
 * A replica that ends at a switch: short responses finish there, long ones continue at another replica, which got its
 * weights from the first one's node.
 */
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { ENGINE_MAIN, startAgent } from '../support/agent.ts';
import { text as wordsOf } from '../support/engine/words.ts';
import { Gateway } from '../support/gateway.ts';
import { endAll, eventually, temporaryDirectory } from '../support/processes.ts';
import { hear } from '../support/streams.ts';
import { NODE } from '../support/where.ts';

afterEach(endAll);

const MODEL = 'Qwen/Qwen3-8B';
const WEIGHTS_BYTES = 4 * 1024 * 1024;
/** Tokens of the long and the short response: on the slow replica they take a minute and a second. */
const [LONG, SHORT] = [1_200, 20];
const RATES = { slow: 20, quick: 2_000 };
const DRAIN_MS = 5_000;

it('what ends within the drain ends there, and a longer stream goes on at the next replica, whole', async () => {
  const gateway = await Gateway.start();
  const [token, key] = [await gateway.createJoinToken(), await gateway.createKey()];
  const directory = await temporaryDirectory('otela-moved');
  const templates = join(directory, 'templates');
  await mkdir(templates, { mode: 0o755 });
  const source = join(directory, 'shared', 'model');
  await mkdir(source, { recursive: true });
  await writeFile(join(source, 'model.safetensors'), randomBytes(WEIGHTS_BYTES));
  for (const [name, rate] of Object.entries(RATES)) {
    // The engine does not start without the weights.
    const shell = ['sh', '-c', 'test -s "$0/model.safetensors" && exec "$@"', '{{weights}}'];
    const argv = [...shell, NODE, ENGINE_MAIN, '--port', '{{port}}', '--model', MODEL, '--rate', String(rate)];
    const template = JSON.stringify({
      argv: [...argv, '--tokens', String(LONG)],
      weights: `dir:${source}`,
      parameters: {},
    });
    await writeFile(join(templates, `${name}.json`), template, { mode: 0o644 });
  }
  // The planner ignores nodes without a GPU.
  const gpus = join(directory, 'bin', 'nvidia-smi');
  await mkdir(join(directory, 'bin'));
  await writeFile(gpus, "#!/bin/sh\necho '0, GPU-0, NVIDIA A100-SXM4-80GB, 81920'\n");
  await chmod(gpus, 0o755);
  const env = { PATH: `${join(directory, 'bin')}:${process.env.PATH}` };
  const agents = await Promise.all(
    ['a', 'b'].map((name) => {
      const args = ['--accept-deployments', templates, '--weights-dir', join(directory, name)];
      return startAgent({ gateways: [gateway.url], token, args, env });
    }),
  );
  const idle = await eventually('two idle agents', 60_000, async () => {
    const nodes = (await gateway.nodes()).filter(({ labels }) => labels?.['otela.accepts'] !== undefined);
    return nodes.length === 2 ? nodes : undefined;
  });
  const order = (at: number, template: string) =>
    gateway.admin('PUT', `nodes/${idle[at]?.session}/deployment`, { id: `plan-${template}`, template, parameters: {} });
  await order(0, 'slow');
  const [slow] = await gateway.serving(1, 60_000, MODEL);
  // From now on only the first node has the weights.
  await rename(source, `${source}-gone`);

  const ask = (more: object) =>
    fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-otela-resume': '1' },
      body: JSON.stringify({ model: MODEL, stream: true, messages: [{ role: 'user', content: 'Say.' }], ...more }),
    });
  const long = await ask({ max_tokens: LONG });
  const short = await ask({ max_tokens: SHORT });
  for (const answer of [long, short]) expect(answer.headers.get('x-otela-node')).toBe(slow?.session);

  const end = gateway.admin('DELETE', `nodes/${slow?.session}/deployment?drain_ms=${DRAIN_MS}`);
  await Promise.all([end, order(1, 'quick')]);
  const [whole, brief] = (await Promise.all([long.text(), short.text()])).map(hear);
  expect(brief).toMatchObject({ text: wordsOf(SHORT), dones: 1, errors: [] });
  expect(brief?.comments.filter((one) => one.startsWith('otela continued'))).toEqual([]);
  expect(whole).toMatchObject({ text: wordsOf(LONG), dones: 1, errors: [] });
  const [quick] = await gateway.serving(1, 60_000, MODEL);
  expect(whole?.comments.filter((one) => one.startsWith('otela continued'))).toEqual([
    `otela continued node=${quick?.session} attempts=2`,
  ]);
  expect(whole?.ids.size).toBe(1);
  const copied = agents.flatMap((agent) => / is ready after \S+ s: (.*)$/m.exec(agent.output)?.slice(1) ?? []);
  expect(copied.toSorted()).toEqual([
    `0 bytes from the source, ${WEIGHTS_BYTES} from other nodes`,
    `${WEIGHTS_BYTES} bytes from the source, 0 from other nodes`,
  ]);
});
