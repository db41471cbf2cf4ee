/**
 * The command in docs/engines.md for engines that share a KV cache, with a mock of vLLM: its arguments, and where
 * prompts are sent.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { ENGINE_MAIN, startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { endAll, freePort, temporaryDirectory } from '../support/processes.ts';
import { NODE } from '../support/where.ts';

afterEach(endAll);

const MODEL = 'org/cached';
const TRANSFER =
  '{"kv_connector":"LMCacheMPConnector","kv_role":"kv_both","kv_connector_extra_config":{"lmcache.mp.save_decode_cache":true}}';
const CACHE = { LMCACHE_LOG_LEVEL: 'INFO' };

it('engines get the flags and the environment of a shared cache; turns stay at a node, and go on at the other when it is gone', async () => {
  const gateway = await Gateway.start();
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  const directory = await temporaryDirectory();
  const vllm = join(directory, 'vllm');
  await writeFile(
    vllm,
    `#!/bin/sh\nprintf '%s\\n' "$@" > "${directory}/argv.$$"; env > "${directory}/env.$$"\necho $$ >> "${directory}/pids"\nexec '${NODE}' '${ENGINE_MAIN}' --model '${MODEL}' "$@"\n`,
    { mode: 0o755 },
  );
  await Promise.all(
    [0, 1].map(async () => {
      const port = String(await freePort());
      const command = [vllm, 'serve', MODEL, '--host', '127.0.0.1', '--port', port, '--kv-transfer-config', TRANSFER];
      return startAgent({ gateways: [gateway.url], token, env: CACHE, command });
    }),
  );
  await gateway.serving(2);
  const pids = (await readFile(join(directory, 'pids'), 'utf8')).trim().split('\n');
  expect(pids).toHaveLength(2);
  for (const pid of pids) {
    expect((await readFile(join(directory, `argv.${pid}`), 'utf8')).split('\n')).toContain(TRANSFER);
    const environment = (await readFile(join(directory, `env.${pid}`), 'utf8')).split('\n');
    expect(environment).toEqual(
      expect.arrayContaining(Object.entries(CACHE).map(([name, value]) => `${name}=${value}`)),
    );
  }
  const turn = async () => {
    const response = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-otela-session': 'one' },
      body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'Hello' }] }),
    });
    await response.text();
    return response.status === 200 ? (response.headers.get('x-otela-node') ?? 'none') : `status ${response.status}`;
  };
  const first = await turn();
  for (let n = 0; n < 8; n++) expect(await turn()).toBe(first);
  await gateway.admin('POST', `nodes/${first}/drain`);
  await gateway.serving(1);
  const second = await turn();
  expect(second).not.toBe(first);
  expect(second).toMatch(/^[a-z0-9]{26}$/);
});
