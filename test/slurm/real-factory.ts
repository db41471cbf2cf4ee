/**
 * A complete autoscaler on a real batch system: its factory.toml, with agents and mock engines as jobs, and its
 * program.
 */
import { join } from 'node:path';
import { Managed } from '../support/processes.ts';
import { MODEL } from '../support/test-cluster.ts';
import { USER } from './cluster.ts';

interface Site {
  /** Contains the programs in bin/, and the state in factory/. */
  directory: string;
  gateway: string;
  name: string;
  cluster: string;
  launcher: string;
  tokenFile: string;
  joinTokenFile: string;
  /** Lines of the only pool, of A100s. */
  pool: string;
  /** The mock engine's loading time. */
  loadMs: number;
  /** Lines of the only model. */
  model: string;
}

export function factoryToml(site: Site): string {
  const bin = join(site.directory, 'bin');
  const engine = [join(bin, 'node'), join(bin, 'stand-in-engine.mjs'), '--port', '{{port}}', '--model', '{{model}}'];
  return `factory = "${site.name}"
gateway = "${site.gateway}"
token_file = "${site.tokenFile}"
state = "${join(site.directory, 'factory')}"

[guest]
every = "2s"
short_lived = "20s"

[clusters.${site.cluster}]
launcher = "${site.launcher}"
agent = ["${bin}/node", "${bin}/otela-agent.mjs"]
join_token_file = "${site.joinTokenFile}"
setup = ["export PATH=${bin}:$PATH", "unset PROXY HTTP_PROXY http_proxy"]
environment = { OTELA_MESH = "127.0.0.1" }

[[clusters.${site.cluster}.pools]]
gpu = "A100"
${site.pool}

[recipes.stand-in]
weights = "none"
load = "5s"
[[recipes.stand-in.engines]]
gpu = ["A100"]
gpus = 1
command = ${JSON.stringify([...engine, '--start-after-ms', String(site.loadMs)])}

[models."${MODEL}"]
recipe = "stand-in"
${site.model}
`;
}

/** Starts the program as the cluster's user. */
export function startFactory(directory: string, config: string, env: Record<string, string>): Managed {
  const bin = join(directory, 'bin');
  return new Managed([join(bin, 'node'), join(bin, 'otela-factory.mjs'), 'run', '--config', config], {
    label: 'otela-factory',
    env,
    uid: USER.uid,
    gid: USER.gid,
    cwd: '/tmp',
  });
}
