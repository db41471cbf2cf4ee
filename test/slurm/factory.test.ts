/** A factory on a real Slurm that is empty at first. */
import { chmod, chown, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import type { ServingNode } from '../../shared/factory/exchange.ts';
import { ExchangeStandIn, TOKEN } from '../support/factory/exchange-stand-in.ts';
import { chatBody, type House, MODEL, openHouse } from '../support/house.ts';
import { atEnd, endAll, eventually, Managed } from '../support/processes.ts';
import { Cluster, USER } from './cluster.ts';

afterEach(endAll);

const LOAD_MS = 5_000;

/** The factory's program as the cluster's user, and the file that it reads. */
class Site {
  readonly house: House;
  readonly cluster: Cluster;
  readonly exchange: ExchangeStandIn;
  readonly #config: string;

  constructor(house: House, cluster: Cluster, exchange: ExchangeStandIn, config: string) {
    this.house = house;
    this.cluster = cluster;
    this.exchange = exchange;
    this.#config = config;
  }

  start(): Managed {
    const bin = join(this.cluster.directory, 'bin');
    const factory = new Managed([join(bin, 'node'), join(bin, 'otela-factory.mjs'), 'run', '--config', this.#config], {
      label: 'otela-factory',
      env: { ...this.cluster.userEnv, HOME: '/nonexistent', USER: 'nobody' },
      uid: USER.uid,
      gid: USER.gid,
      cwd: '/tmp',
    });
    atEnd(() => factory.stop());
    return factory;
  }

  /** The gateway's nodes, as an exchange tells them. */
  async look(idleMs = 0): Promise<void> {
    const nodes = await this.house.gateway.nodes();
    this.exchange.nodes(
      ...nodes
        .filter(({ state, suspected }) => (state === 'JOIN' || state === 'SERVING') && !suspected)
        .map(
          (node): ServingNode => ({
            session: node.session,
            state: node.state === 'SERVING' ? 'ready' : 'loading',
            in_flight: 0,
            idle_ms: idleMs,
            labels: node.labels,
          }),
        ),
    );
  }
}

async function openSite(more: { cluster?: string; model?: string } = {}): Promise<Site> {
  const house = await openHouse();
  await house.agents[0]?.stop();
  const [cluster, exchange] = [await Cluster.up(), await ExchangeStandIn.open()];
  const join_token = await cluster.secret('join-token', await house.gateway.createJoinToken('hpc', 'alps'));
  const token = await cluster.secret('factory-token', TOKEN);
  const state = join(cluster.directory, 'factory');
  await mkdir(state, { mode: 0o700 });
  await chown(state, USER.uid, USER.gid);
  const bin = join(cluster.directory, 'bin');
  const config = join(cluster.directory, 'factory.toml');
  const engine = ['node', 'stand-in-engine.mjs'].map((name) => join(bin, name));
  const lines = `
factory = "pool"
gateway = "${exchange.url}"
token_file = "${token}"
state = "${state}"

[guest]
every = "2s"

[clusters.alps]
launcher = "slurm"
agent = ["${bin}/node", "${bin}/otela-agent.mjs"]
join_token_file = "${join_token}"
setup = ["export PATH=${bin}:$PATH", "unset PROXY HTTP_PROXY http_proxy"]
environment = { OTELA_GATEWAY = "${house.gateway.url}", OTELA_MESH = "127.0.0.1" }
${more.cluster ?? ''}
[[clusters.alps.pools]]
name = "normal"
gpu = "A100"
gres = "a100"
gpus_per_node = 4
time = "10"

[recipes.stand-in]
weights = "none"
load = "5s"
[[recipes.stand-in.engines]]
gpu = ["A100"]
gpus = 1
command = ${JSON.stringify([...engine, '--port', '{{port}}', '--model', '{{model}}', '--start-after-ms', String(LOAD_MS)])}

[models."${MODEL}"]
recipe = "stand-in"
idle = "10s"
${more.model ?? ''}
`;
  await writeFile(config, lines);
  await chmod(config, 0o644);
  return new Site(house, cluster, exchange, config);
}

it('a request for a cold model starts a job that answers it', { timeout: 240_000 }, async () => {
  const site = await openSite();
  const factory = site.start();
  await factory.line(/1 models, 1 clusters/, 20_000);
  await eventually(
    'it reports a cold model',
    10_000,
    () => site.exchange.report?.models[0]?.state === 'cold' || undefined,
  );
  expect(site.cluster.command('squeue', '-h')).toBe('');
  const asked = Date.now();
  site.exchange.demand({ model: MODEL, waiting: 1, oldest_wait_ms: 1 });
  const answer = await eventually('it is answered', 60_000, async () => {
    await site.look();
    const response = await site.house.ask('/v1/chat/completions', chatBody({ tokens: 2 }));
    const body = await response.text();
    return response.status === 200 ? JSON.parse(body) : undefined;
  });
  expect(Date.now() - asked).toBeLessThan(LOAD_MS + 20_000);
  expect(answer).toMatchObject({ object: 'chat.completion' });
  await eventually('it reports it ready', 10_000, async () => {
    await site.look();
    return site.exchange.report?.models[0]?.state === 'ready' || undefined;
  });
  site.exchange.demand({ model: MODEL, ready_replicas: 1 });
  await eventually('its job is over', 60_000, async () => {
    await site.look(60_000);
    return site.cluster.command('squeue', '-h') === '' || undefined;
  });
});
