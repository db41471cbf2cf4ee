/** The Python client: the ten lines of its example, by a real agent. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, expect, it } from 'vitest';
import { startAgent } from '../../support/agent.ts';
import { Gateway } from '../../support/gateway.ts';
import { endAll } from '../../support/processes.ts';
import { ROOT } from '../../support/where.ts';

afterEach(endAll);

it('the client’s example runs on the nodes, and its module is not needed there', async () => {
  const gateway = await Gateway.start();
  const project = await gateway.createProject('claims');
  const key = await gateway.createKey('claims', { project_id: project });
  const token = await gateway.createJoinToken();
  await startAgent({ gateways: [gateway.url], token, args: ['--allow-functions', project] });
  const { stdout } = await promisify(execFile)('python3', [join(ROOT, 'clients/python/example.py')], {
    env: { PATH: process.env.PATH ?? '', OTELA_GATEWAY: gateway.url, OTELA_API_KEY: key },
    timeout: 300_000,
  });
  expect(stdout.trim()).toBe("['SUPPORTED', 'REFUTED']");
});
