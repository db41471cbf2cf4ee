import { type Host, THIS_MACHINE } from './host.ts';
import { LocalShell } from './local-shell.ts';
import { Ssh } from './openssh.ts';

/** @param host as after `ssh`, or THIS_MACHINE. @throws UpError */
export async function connectHost(host: string): Promise<Host> {
  return host === THIS_MACHINE ? new LocalShell() : Ssh.connect(host);
}
