/** A gateway on Cloudflare's own runtime: `wrangler dev`, with D1 and Durable Objects in a directory. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { wantedSecrets } from '../../gateway/cloudflare/worker-secrets.ts';
import { wranglerIn } from '../../gateway/cloudflare/wrangler.ts';
import { GatewayClient } from './gateway-client.ts';
import { eventually, freePort, Managed, temporaryDirectory } from './processes.ts';
import { NODE, ROOT } from './where.ts';

/** Time limit of a start: wrangler first builds the page and the Worker. */
const READY_MS = 120_000;

interface WranglerOptions {
  data?: string;
  port?: number;
  host?: string;
  /** Variables of the gateway; see gateway/env.ts. */
  settings?: Record<string, string>;
}

const QUIET = { CI: 'true', WRANGLER_SEND_METRICS: 'false', WRANGLER_HIDE_BANNER: 'true', NO_COLOR: '1' };

export class WranglerGateway extends GatewayClient {
  readonly data: string;
  readonly process: Managed;

  private constructor(url: string, adminKey: string, data: string, process: Managed) {
    super(url, adminKey);
    this.data = data;
    this.process = process;
  }

  static async start({
    data,
    port,
    host = '127.0.0.1',
    settings = {},
  }: WranglerOptions = {}): Promise<WranglerGateway> {
    const directory = data ?? (await temporaryDirectory('otela-worker'));
    const state = join(directory, 'state');
    await mkdir(state, { recursive: true });
    const now = Math.floor(Date.now() / 1000);
    const { secrets } = await wantedSecrets(directory, [], { newAdminKey: false, nowS: now });
    const envFile = join(directory, 'secrets.env');
    // dotenv takes a value in single quotes literally; in double quotes it would change the backslashes of JSON.
    const lines = Object.entries({ ...secrets, ...settings }).map(([name, value]) => `${name}='${value}'\n`);
    await writeFile(envFile, lines.join(''), { mode: 0o600 });
    const local = ['--local', '--persist-to', state];
    await wranglerIn(ROOT, process.env)(['d1', 'migrations', 'apply', 'opentela', ...local]);
    const at = port ?? (await freePort());
    const command = [NODE, join(ROOT, 'node_modules/wrangler/bin/wrangler.js'), 'dev', '--ip', host];
    const places = ['--port', String(at), '--inspector-port', '0', '--persist-to', state, '--env-file', envFile];
    const wrangler = new Managed([...command, ...places], { label: 'wrangler dev', cwd: ROOT, env: QUIET });
    const adminKey = (await readFile(join(directory, 'admin.key'), 'utf8')).trim();
    const gateway = new WranglerGateway(`http://${host}:${at}`, adminKey, directory, wrangler);
    const ready = eventually('the Worker is ready', READY_MS, async () => {
      const answer = await fetch(`${gateway.url}/readyz`).catch(() => undefined);
      await answer?.body?.cancel();
      return answer?.ok === true ? true : undefined;
    });
    const ended = wrangler.exited.then(() => Promise.reject(wrangler.failure('ended before it was ready')));
    await Promise.race([ready, ended]);
    return gateway;
  }
}
