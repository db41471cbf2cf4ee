/** This machine as a host. Scripts run in a plain shell, because a login shell may reset the PATH of this terminal. */
import { spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { commandRunner, type RunCommand } from '../../node/command-runner.ts';
import { UpError } from '../up-error.ts';
import { type Host, type HostProcess, lastChars, THIS_MACHINE } from './host.ts';

export class LocalShell implements Host {
  readonly host = THIS_MACHINE;
  readonly runner: RunCommand = commandRunner();

  async output(script: string, input?: string): Promise<string> {
    const result = await this.runner('bash', ['-c', script], input);
    if (result.kind === 'done' && result.code === 0) return result.out;
    throw new UpError(`A command on this machine failed: ${result.errors}`, 'The message above says why.');
  }

  async send(script: string, stream: Readable): Promise<void> {
    const child = this.spawn(script);
    const [errors, code] = [lastChars(child.stderr), new Promise<number | null>((end) => child.once('close', end))];
    child.stdout.resume();
    await pipeline(stream, child.stdin).catch(() => undefined);
    if ((await code) !== 0) throw new UpError(`Writing a file failed: ${errors().trim()}`, 'Check the free space.');
  }

  spawn(script: string): HostProcess {
    return spawn('bash', ['-c', script], { stdio: ['pipe', 'pipe', 'pipe'] });
  }

  show(script: string): Promise<number> {
    const child = spawn('bash', ['-c', script], { stdio: ['ignore', 'inherit', 'inherit'] });
    return new Promise((resolve, reject) => child.once('error', reject).once('exit', (code) => resolve(code ?? 1)));
  }

  async isConnected(): Promise<boolean> {
    return true;
  }

  async close(): Promise<void> {}
}
