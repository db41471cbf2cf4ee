/** A real sshd, its users, and an ssh client that knows only this sshd. Needs root. */
import { execFileSync, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmod, chown, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { which } from './abilities.ts';
import { descendants } from './process-table.ts';
import { atEnd, eventually, freePort, Managed, temporaryDirectory } from './processes.ts';

/** True if this machine has no ssh server. */
export const NO_SSHD = which('sshd') === undefined;

export interface HostUser {
  name: string;
  uid: number;
  gid: number;
  home: string;
}

/** Creates a user of this machine. The user is removed at the end. */
export async function createUser(profile = ''): Promise<HostUser> {
  const name = `otela-${randomBytes(4).toString('hex')}`;
  const home = await temporaryDirectory('otela-home');
  // sshd refuses a user with a locked password; `*` is a password that nothing matches.
  execFileSync('useradd', ['--no-create-home', '--home-dir', home, '--shell', '/bin/bash', '--password', '*', name]);
  // --force: processes of the user may still be ending.
  atEnd(() => void spawnSync('userdel', ['--force', name]));
  const [uid = 0, gid = 0] = ['-u', '-g'].map((flag) => Number(execFileSync('id', [flag, name], { encoding: 'utf8' })));
  await mkdir(join(home, 'bin'));
  await writeFile(join(home, '.bash_profile'), `${profile}\nexport PATH="$HOME/bin:$PATH"\n`);
  await chmod(home, 0o711);
  for (const path of [home, join(home, 'bin'), join(home, '.bash_profile')]) await chown(path, uid, gid);
  return { name, uid, gid, home };
}

/** What a command prints that the user runs, and its exit code. */
export function asUser({ uid, gid, home }: HostUser, script: string): { code: number | null; out: string } {
  const done = spawnSync('bash', ['-lc', script], {
    uid,
    gid,
    cwd: '/',
    encoding: 'utf8',
    env: { HOME: home, PATH: process.env.PATH ?? '' },
  });
  return { code: done.status, out: `${done.stdout}${done.stderr}` };
}

/** Where sshd listens. */
interface SshPlace {
  address: string;
  /** Precedes the command, such as `ip netns exec login`. */
  prefix: readonly string[];
}

export class SshHost {
  readonly directory: string;
  readonly port: number;
  #sshd: Managed;
  #hostKey: string;
  readonly #lines: string;
  readonly #place: SshPlace;

  private constructor(directory: string, port: number, hostKey: string, lines: string, place: SshPlace) {
    this.directory = directory;
    this.port = port;
    this.#hostKey = hostKey;
    this.#lines = lines;
    this.#place = place;
    this.#sshd = this.#start();
  }

  /** @param lines further lines of sshd_config */
  static async start(lines = '', place: SshPlace = { address: '127.0.0.1', prefix: [] }): Promise<SshHost> {
    const directory = await temporaryDirectory('otela-sshd');
    await mkdir('/run/sshd', { recursive: true, mode: 0o755 });
    const host = new SshHost(directory, await freePort(), keyPair(directory, 'host'), lines, place);
    atEnd(() => host.down());
    await host.#listens();
    return host;
  }

  #start(): Managed {
    const options = [
      `ListenAddress ${this.#place.address}`,
      `Port ${this.port}`,
      `HostKey ${this.#hostKey}`,
      'UsePAM no',
      'PidFile none',
      'PrintMotd no',
    ];
    const config = [...options, ...this.#lines.split('\n')].flatMap((line) =>
      line === '' ? [] : ['-o', line.replace(' ', '=')],
    );
    return new Managed([...this.#place.prefix, which('sshd') ?? 'sshd', '-D', '-e', '-f', '/dev/null', ...config], {
      label: 'sshd',
    });
  }

  async #listens(): Promise<void> {
    await this.#sshd.line(/Server listening/, 10_000);
  }

  /** Ends sshd and all its connections, as a network that is gone does; `start` brings it back. */
  async down(): Promise<void> {
    // Each connection has a process that left the group of sshd.
    const connections = descendants(this.#sshd.pid);
    await this.#sshd.dispose(0);
    for (const pid of connections) spawnSync('kill', ['-KILL', String(pid)]);
  }

  /** @param newKey true: with another host key */
  async up(newKey = false): Promise<void> {
    if (newKey) this.#hostKey = keyPair(this.directory, `host-${randomBytes(2).toString('hex')}`);
    this.#sshd = this.#start();
    await this.#listens();
  }

  /**
   * Lets a client log in as the user. Returns a directory with a program `ssh` that knows the host as `cluster`.
   */
  async client(user: HostUser, home: string): Promise<string> {
    const [ssh, bin] = [join(home, '.ssh'), join(home, 'bin')];
    for (const directory of [ssh, bin]) await mkdir(directory, { recursive: true, mode: 0o700 });
    const key = keyPair(ssh, 'id');
    const authorized = join(user.home, '.ssh');
    await mkdir(authorized, { recursive: true, mode: 0o700 });
    await writeFile(join(authorized, 'authorized_keys'), await readFile(`${key}.pub`, 'utf8'), { mode: 0o600 });
    for (const path of [authorized, join(authorized, 'authorized_keys')]) await chown(path, user.uid, user.gid);
    const config = join(ssh, 'config');
    const known = join(ssh, 'known_hosts');
    await writeFile(
      config,
      `Host cluster\n HostName ${this.#place.address}\n Port ${this.port}\n User ${user.name}\n IdentityFile ${key}\n IdentitiesOnly yes\n UserKnownHostsFile ${known}\n StrictHostKeyChecking accept-new\n`,
    );
    await writeFile(join(bin, 'ssh'), `#!/bin/sh\nexec /usr/bin/ssh -F ${config} "$@"\n`, { mode: 0o755 });
    return bin;
  }
}

/** Makes a key pair and returns the path of the private key. */
function keyPair(directory: string, name: string): string {
  const file = join(directory, name);
  execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', file]);
  return file;
}

/** Waits until no process of the user is left. */
export async function noProcessOf({ name }: HostUser, withinMs = 15_000): Promise<void> {
  await eventually(`no process of ${name}`, withinMs, () => {
    const { stdout } = spawnSync('ps', ['-u', name, '-o', 'pid=,args='], { encoding: 'utf8' });
    if (stdout.trim() === '') return true;
    throw new Error(stdout);
  });
}
