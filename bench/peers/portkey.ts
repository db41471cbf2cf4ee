import { join } from 'node:path';
import { freePort, Managed } from '../../test/support/processes.ts';
import { NODE } from '../../test/support/where.ts';
import { answering, npm } from './installed.ts';
import type { Peer } from './peer.ts';

const VERSION = '1.15.2';
/** By default it installs later versions of these packages, with which each stream returns a 500. */
const OVERRIDES = { hono: '4.9.7', '@hono/node-server': '1.13.5' };
const MANIFEST = { private: true, dependencies: { '@portkey-ai/gateway': VERSION }, overrides: OVERRIDES };

export const portkey: Peer = {
  name: 'Portkey',
  does: { keys: false, usage: false, tunnel: false },
  install: () => npm('portkey', MANIFEST).then(() => VERSION),
  start: async (engine) => {
    const [directory, port] = [await npm('portkey', MANIFEST), await freePort()];
    const server = join(directory, 'node_modules/@portkey-ai/gateway/build/start-server.js');
    const env = { TRUSTED_CUSTOM_HOSTS: '127.0.0.1,localhost' };
    const child = new Managed([NODE, server, `--port=${port}`, '--headless'], { label: 'Portkey', env });
    const url = `http://127.0.0.1:${port}`;
    await answering(url, child);
    return { url, key: 'none', headers: { 'x-portkey-provider': 'openai', 'x-portkey-custom-host': `${engine}/v1` } };
  },
};
