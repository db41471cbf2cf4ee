import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { startAgent } from '../../test/support/agent.ts';
import { Gateway } from '../../test/support/gateway.ts';
import { ROOT } from '../../test/support/where.ts';
import { MODEL, type Peer } from './peer.ts';

const READY_MS = 15_000;

/** A gateway, and an agent that wraps the engine, as measured by `npm run bench`. */
export const ours: Peer = {
  name: 'OpenTela',
  does: { keys: true, usage: true, tunnel: true },
  install: async () => {
    const manifest: unknown = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    return z.object({ version: z.string() }).parse(manifest).version;
  },
  start: async (engine) => {
    const gateway = await Gateway.start();
    const [key, token] = await Promise.all([gateway.createKey('bench'), gateway.createJoinToken()]);
    await startAgent({ gateways: [gateway.url], token, engineUrl: engine });
    await gateway.serving(1, READY_MS, MODEL);
    return { url: gateway.url, key };
  },
};
