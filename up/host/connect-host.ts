import { type Host, THIS_MACHINE } from './host.ts';
import { LocalShell } from './local-shell.ts';
import { Ssh } from './openssh.ts';

/** @param host as after `ssh`, or THIS_MACHINE. @throws UpError */
export async function connectHost(host: string): Promise<Host> {
  return host === THIS_MACHINE ? new LocalShell() : Ssh.connect(host);
}

/** Connects and runs a first script, in one round trip. Returns its output too. @throws UpError */
export async function connectAndRun(host: string, script: string): Promise<{ host: Host; out: string }> {
  if (host !== THIS_MACHINE) return Ssh.connectAndRun(host, script);
  const shell = new LocalShell();
  return { host: shell, out: await shell.output(script) };
}
