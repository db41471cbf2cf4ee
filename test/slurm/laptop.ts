/** A laptop, and a cluster that it reaches only by ssh: a real sshd, a real Slurm, and a user of both. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Managed, temporaryDirectory } from '../support/processes.ts';
import { createUser, type HostUser, SshHost } from '../support/ssh-host.ts';
import { NODE, OTELA_MAIN, ROOT } from '../support/where.ts';
import { Cluster } from './cluster.ts';
import type { LaptopNetwork } from './laptop-network.ts';

export const MODEL = 'Qwen/Qwen3-8B';

export class Laptop {
  readonly home: string;
  readonly cluster: Cluster;
  readonly host: SshHost;
  readonly user: HostUser;
  readonly env: Record<string, string>;
  /** Precedes the laptop's commands. */
  readonly #prefix: readonly string[];

  private constructor(
    home: string,
    cluster: Cluster,
    host: SshHost,
    user: HostUser,
    bin: string,
    prefix: readonly string[],
  ) {
    this.#prefix = prefix;
    this.home = home;
    this.cluster = cluster;
    this.host = host;
    this.user = user;
    this.env = { HOME: home, PATH: `${bin}:${process.env.PATH}` };
  }

  /**
   * @param slurm further lines of slurm.conf
   * @param sshd further lines of sshd_config
   * @param network absent: laptop, login node and compute nodes have this machine's network
   */
  static async open(slurm = '', sshd = '', network?: LaptopNetwork): Promise<Laptop> {
    const cluster = await Cluster.up(slurm, network?.nodes);
    const { PATH = '', SLURM_CONF = '' } = cluster.userEnv;
    const user = await createUser(
      `export PATH='${PATH}' SLURM_CONF='${SLURM_CONF}'\nunset PROXY HTTP_PROXY http_proxy`,
    );
    const installed = join(cluster.directory, 'bin');
    // vLLM on the cluster, played by the mock engine, which asks for the key as vLLM does.
    const vllm = `${installed}/node ${installed}/stand-in-engine.mjs --model '${MODEL}' --api-key-env VLLM_API_KEY`;
    await writeFile(join(user.home, 'bin/vllm'), `#!/bin/sh\nexec ${vllm} "$@"\n`, { mode: 0o755 });
    const host = await SshHost.start(sshd, network?.login);
    const home = await temporaryDirectory('otela-laptop');
    return new Laptop(home, cluster, host, user, await host.client(user, home), network?.laptop ?? []);
  }

  /** Starts a command of `otela`. */
  otela(...args: string[]): Managed {
    return new Managed([...this.#prefix, NODE, OTELA_MAIN, ...args], {
      label: `otela ${args[0]}`,
      env: this.env,
      cwd: ROOT,
    });
  }

  /** Runs a command of `otela` to its end. */
  async ran(...args: string[]): Promise<{ code: number | null; out: string }> {
    const running = this.otela(...args);
    const { code } = await running.end(120_000);
    return { code, out: running.output };
  }

  up(...args: string[]): Managed {
    return this.otela('up', MODEL, '--host', 'cluster', ...args);
  }
}

export interface Served {
  url: string;
  key: string;
}

/** Waits until `otela up` has printed its address and key. */
export async function served(up: Managed): Promise<Served> {
  const [, url = '', key = ''] = await up.line(/export OPENAI_BASE_URL=(\S+) OPENAI_API_KEY=(\S+)/, 60_000);
  return { url, key };
}

/** The text that the model answers. */
export async function answer({ url, key }: Served, model = MODEL): Promise<string> {
  const response = await fetch(`${url}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model, max_tokens: 6, messages: [{ role: 'user', content: 'Hello' }] }),
  });
  return response.text();
}
