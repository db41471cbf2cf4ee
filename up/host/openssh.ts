/**
 * The user's own OpenSSH: its configuration, agent, jump hosts and second factors. All commands of one run share one
 * connection (ControlMaster), so that a second factor is asked once.
 */
import { spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type CommandResult, commandRunner, type RunCommand } from '../../node/command-runner.ts';
import { UsageError } from '../../shared/command-line/index.ts';
import { UpError } from '../up-error.ts';
import { type Host, type HostProcess, lastChars } from './host.ts';
import { loginShell, shellQuoted } from './shell-words.ts';
import { SSH_FAILED, sshFailure } from './ssh-failure.ts';

/** How long a person may take to type a password and a second factor. */
const LOGIN_MS = 10 * 60_000;

/** OpenSSH ends a connection that is silent for 45 s, for example after the laptop changed its network. */
const KEEPALIVE = ['-o', 'ServerAliveInterval=15', '-o', 'ServerAliveCountMax=3'];
/** How long the shared connection stays open between two commands. */
const PERSIST_S = 60;

/** A host as after `ssh`. It must not begin with a dash, which ssh would read as an option. */
export function sshHost(text: string): string {
  if (!/^\w[\w.@:%+[\]-]{0,254}$/.test(text)) throw new UsageError(`--host: "${text}" is not a host for ssh`);
  return text;
}

export class Ssh implements Host {
  readonly host: string;
  readonly #options: readonly string[];
  readonly #run: RunCommand;
  readonly #log: RunCommand;

  private constructor(host: string, options: readonly string[]) {
    this.host = host;
    this.#options = options;
    this.#run = commandRunner();
    this.#log = commandRunner({}, LOGIN_MS);
  }

  /** Connects, and lets ssh ask in the terminal what it needs. @throws UpError */
  static async connect(host: string): Promise<Ssh> {
    return (await Ssh.#login(host, 'exit 0')).ssh;
  }

  /** Connects, and runs a script in a login shell. @throws UpError if ssh or the script fails */
  static async connectAndRun(host: string, script: string): Promise<{ host: Ssh; out: string }> {
    const { ssh, result } = await Ssh.#login(host, loginShell(script));
    return { host: ssh, out: ssh.#printed(result) };
  }

  static async #login(host: string, command: string) {
    const ssh = new Ssh(host, [...KEEPALIVE, ...(await connectionOptions(host))]);
    // The login time limit is long, because the person may have to look for a second factor.
    const result = ssh.#result(await ssh.#log('ssh', ssh.#arguments(command)));
    return { ssh, result };
  }

  #arguments(command: string): string[] {
    return [...this.#options, '-T', '--', this.host, command];
  }

  /** Runs a script in a login shell and returns its output. @throws UpError if ssh or the script fails */
  async output(script: string, input?: string): Promise<string> {
    return this.#printed(this.#result(await this.#run('ssh', this.#arguments(loginShell(script)), input)));
  }

  #printed(result: CommandResult & { kind: 'done' }): string {
    if (result.code === 0) return result.out;
    throw new UpError(
      `A command on ${this.host} failed: ${result.errors}`,
      'Run otela up again; if it fails again, the message above says why.',
    );
  }

  /** For a launcher: runs a program of the batch system there. */
  readonly runner: RunCommand = async (file, args, input) => {
    const script = [file, ...args].map(shellQuoted).join(' ');
    const result = await this.#run('ssh', this.#arguments(loginShell(script)), input);
    // If ssh fails, the program may have run: a launcher must not treat this as the program's refusal.
    if (result.kind === 'done' && result.code === SSH_FAILED) return { kind: 'killed', errors: result.errors };
    return result;
  };

  /** Sends a stream to the script's input. @throws UpError */
  async send(script: string, stream: Readable): Promise<void> {
    const child = this.spawn(script);
    const [errors, code] = [lastChars(child.stderr), new Promise<number | null>((end) => child.once('close', end))];
    child.stdout.resume();
    // A failure of the other end shows in its exit code and its error output.
    await pipeline(stream, child.stdin).catch(() => undefined);
    if ((await code) === 0) return;
    throw (await code) === SSH_FAILED
      ? sshFailure(this.host, errors())
      : new UpError(
          `Sending to ${this.host} failed: ${errors().trim()}`,
          'Check the free space of your home directory there.',
        );
  }

  spawn(script: string): HostProcess {
    const options = { stdio: ['pipe', 'pipe', 'pipe'] as ['pipe', 'pipe', 'pipe'] };
    return spawn('ssh', this.#arguments(loginShell(script)), options);
  }

  /** Runs a script and passes its output to the terminal. Resolves with its exit code. */
  async show(script: string): Promise<number> {
    const child = spawn('ssh', this.#arguments(loginShell(script)), { stdio: ['ignore', 'inherit', 'inherit'] });
    return new Promise((resolve, reject) =>
      child.once('error', reject).once('exit', (code) => resolve(code ?? SSH_FAILED)),
    );
  }

  async isConnected(): Promise<boolean> {
    const asked = await this.#run('ssh', ['-O', 'check', ...this.#options, '--', this.host]);
    return asked.kind === 'done' && asked.code === 0;
  }

  /** Lets the shared connection end with its last command, unless it is the user's own. */
  async close(): Promise<void> {
    if (this.#options.includes('ControlMaster=auto'))
      await this.#run('ssh', ['-O', 'stop', ...this.#options, '--', this.host]);
  }

  #result(result: CommandResult): CommandResult & { kind: 'done' } {
    if (result.kind === 'missing')
      throw new UpError(
        `There is no ssh on this machine: ${result.errors}`,
        'Install OpenSSH, then run otela up again.',
      );
    if (result.kind === 'killed' || result.code === SSH_FAILED) throw sshFailure(this.host, result.errors);
    return result;
  }
}

/** What otela adds to the user's configuration: a shared connection, unless there is one. */
async function connectionOptions(host: string): Promise<string[]> {
  const asked = await commandRunner()('ssh', ['-G', '--', host]);
  const configured = new Map(
    asked.kind === 'done' ? asked.out.split('\n').map((line) => line.split(' ', 2) as [string, string]) : [],
  );
  // `no` and `off` accept a changed host key. Known hosts must keep their key.
  const unsafe = /^(?:no|off|false)$/.test(configured.get('stricthostkeychecking') ?? '');
  const strict = unsafe ? ['-o', 'StrictHostKeyChecking=accept-new'] : [];
  const shares = /^(?:true|yes|ask|auto|autoask)$/.test(configured.get('controlmaster') ?? '');
  if (shares && configured.has('controlpath')) return strict;
  const directory = join(homedir(), '.ssh');
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const path = join(directory, 'otela-%C');
  return [...strict, '-o', 'ControlMaster=auto', '-o', `ControlPath=${path}`, '-o', `ControlPersist=${PERSIST_S}`];
}
