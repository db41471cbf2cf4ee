/** A laptop behind NAT, a login node and compute nodes: all programs do the same task there. */
import { appendFile, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Laptop } from '../../test/slurm/laptop.ts';
import { LaptopNetwork } from '../../test/slurm/laptop-network.ts';
import { atEnd, Managed } from '../../test/support/processes.ts';

const NAMES = '10.9.0.11 n1\n10.9.0.11 n2\n10.9.0.12 n3\n10.9.0.12 n4\n';

/** Makes the names of compute nodes known in the cluster, as its DNS would. */
async function nameNodes(): Promise<void> {
  const local = await readFile('/etc/hosts', 'utf8');
  for (const namespace of ['otl-login', 'otl-n1', 'otl-n2']) {
    const directory = join('/etc/netns', namespace);
    await mkdir(directory, { recursive: true });
    atEnd(() => rm(directory, { recursive: true, force: true }));
    await writeFile(join(directory, 'hosts'), `${local}\n${NAMES}`);
  }
}

export class Lab {
  readonly laptop: Laptop;
  readonly #network: LaptopNetwork;

  private constructor(laptop: Laptop, network: LaptopNetwork) {
    this.laptop = laptop;
    this.#network = network;
  }

  static async open(): Promise<Lab> {
    await nameNodes();
    const network = LaptopNetwork.up();
    const laptop = await Laptop.open('', 'Subsystem sftp internal-sftp', network);
    const { home, user } = laptop;
    // A command by ssh has no login shell. Slurm is on the path of each shell of a real cluster.
    await appendFile(join(user.home, '.bashrc'), await readFile(join(user.home, '.bash_profile')));
    const scp = `#!/bin/sh\nexec /usr/bin/scp -F ${join(home, '.ssh/config')} "$@"\n`;
    await writeFile(join(home, 'bin/scp'), scp, { mode: 0o755 });
    return new Lab(laptop, network);
  }

  /** Starts commands of a person on the laptop. */
  script(label: string, script: string): Managed {
    const command = [...this.#network.laptop, 'bash', '-c', `set -euo pipefail\n${script}`];
    return new Managed(command, { label, env: this.laptop.env });
  }

  /** Runs them to their end. @throws Error with their output */
  async ran(label: string, script: string): Promise<void> {
    const running = this.script(label, script);
    const { code } = await running.end(120_000);
    if (code !== 0) throw running.failure(`ended with ${code}`);
  }

  /** Waits until no job is in the queue, so that the next turn finds the cluster as the first one did. */
  async emptyQueue(): Promise<void> {
    await this.ran('squeue', 'until queue=$(ssh cluster squeue -h) && [ -z "$queue" ]; do sleep 0.5; done');
  }
}
