/** The operator's key and the gateway's key are replaced at processes that share a database. */
import { spawnSync } from 'node:child_process';
import { copyFile, mkdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import { NO_POSTGRES } from '../../support/abilities.ts';
import { startAgent } from '../../support/agent.ts';
import { startEngine } from '../../support/engine.ts';
import type { Gateway } from '../../support/gateway.ts';
import { GatewayProcesses } from '../../support/gateway-processes.ts';
import { atEnd, endAll, temporaryDirectory } from '../../support/processes.ts';
import { MODEL } from '../../support/test-cluster.ts';
import { GATEWAY_MAIN, NODE } from '../../support/where.ts';

afterEach(endAll);

const shownSchema = z.object({ gateway_key: z.string(), retired: z.array(z.string()) });

function issuer({ data }: Gateway, verb: string): z.infer<typeof shownSchema> {
  const { status, stdout, stderr } = spawnSync(NODE, [GATEWAY_MAIN, 'issuer', verb, '--data', data, '--json'], {
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(stderr);
  return shownSchema.parse(JSON.parse(stdout));
}

const rootKey = ({ data }: Gateway) => join(data, 'issuer/root.key');

async function restarted(gateway: Gateway): Promise<void> {
  await gateway.stop();
  await gateway.restart();
}

const statusWith = async ({ url }: Gateway, key: string) =>
  (await fetch(`${url}/admin/keys`, { headers: { authorization: `Bearer ${key}` } })).status;

test.skipIf(NO_POSTGRES !== undefined)(
  `a process that gets the root key replaces both keys for all, and nodes go on${NO_POSTGRES ? ` (${NO_POSTGRES})` : ''}`,
  async () => {
    const processes = await GatewayProcesses.start(2);
    const [first, second] = processes.gateways as [Gateway, Gateway];
    const engine = await startEngine({ models: [MODEL] });
    atEnd(() => engine.close());
    const token = await first.createJoinToken();
    await startAgent({ gateways: [first.url, second.url], token, engineUrl: engine.url });
    const [node] = await second.serving(1, 30_000);
    await first.process.line(/process 2 at \S+ runs version/, 10_000);

    await expect(second.admin('GET', 'requests/no-such-request')).rejects.toThrow(
      /ask each process by its own address/,
    );

    // The first machine is lost, and the root key is put into the directory of another process.
    const before = issuer(first, 'show');
    const safe = join(await temporaryDirectory(), 'root.key');
    await rename(rootKey(first), safe);
    await second.stop();
    await mkdir(join(second.data, 'issuer'), { recursive: true });
    await copyFile(safe, rootKey(second));
    const lost = second.adminKey;
    await rm(join(second.data, 'admin.key'));
    await second.restart();
    expect(issuer(second, 'show').gateway_key).toBe(before.gateway_key);
    expect(issuer(second, 'rotate').retired).toEqual([before.gateway_key]);
    await restarted(second);
    await rm(rootKey(second));
    await restarted(first);

    expect(first.adminKey).toBe(second.adminKey);
    for (const gateway of [first, second]) {
      expect([await statusWith(gateway, lost), await statusWith(gateway, second.adminKey)]).toEqual([401, 200]);
      expect((await gateway.serving(1, 30_000)).map(({ session }) => session)).toEqual([node?.session]);
    }
    await second.kill9();
    await first.process.line(/process 2 at \S+ has ended/, 20_000);
  },
);
