/**
 * The gateway on Cloudflare's runtime with the flags of `otela-gateway serve`, for tests that run on both hosts: `node
 * worker-host.ts serve --port N --host ADDRESS --data DIR`. Settings of the gateway come from the environment.
 */
import { parseArgs } from 'node:util';
import { ENVIRONMENT_NAMES } from '../../gateway/environment-checks.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { endAll } from './processes.ts';
import { WranglerGateway } from './wrangler-gateway.ts';

const { values } = parseArgs({
  allowPositionals: true,
  options: { port: { type: 'string' }, host: { type: 'string' }, data: { type: 'string' } },
});
const stop = () => neverRejects(endAll().then(() => process.exit(0)));
process.on('SIGTERM', stop);
process.on('SIGINT', stop);
const settings: Record<string, string> = {};
for (const name of ENVIRONMENT_NAMES) {
  const value = process.env[name];
  if (value !== undefined) settings[name] = value;
}
const gateway = await WranglerGateway.start({
  settings,
  ...(values.port !== undefined && { port: Number(values.port) }),
  ...(values.host !== undefined && { host: values.host }),
  ...(values.data !== undefined && { data: values.data }),
});
neverRejects(gateway.process.exited.then(() => process.exit(1)));
console.log(`otela-gateway ready ${gateway.url}`);
