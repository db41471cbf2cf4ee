/** Whether a port of this machine belongs to this user. While a gateway is down, any user may listen at its port. */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';

/** 127.0.0.1 and the state LISTEN, as the kernel writes them on x64 and arm64: see proc(5). */
const LOOPBACK = '0100007F';
const LISTENS = '0A';
const LSOF_MS = 10_000;

/**
 * True if a program of this user listens at the port of 127.0.0.1, so that a key may be sent to it. False if another
 * user's program listens, none does, or this system does not say it.
 */
export async function isOwnListener(port: number): Promise<boolean> {
  const uid = process.getuid?.();
  if (uid === undefined) return false;
  if (process.platform !== 'linux') return hasOwnListener(port, uid);
  const owners = ownersOf(await readFile('/proc/net/tcp', 'utf8').catch(() => ''), port);
  return owners.length > 0 && owners.every((owner) => owner === uid);
}

/** User ids of the listeners at a port of 127.0.0.1. @param table content of /proc/net/tcp */
export function ownersOf(table: string, port: number): number[] {
  const address = `${LOOPBACK}:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  return table.split('\n').flatMap((line) => {
    const [, local, , state, , , , uid] = line.trim().split(/\s+/);
    return local === address && state === LISTENS ? [Number(uid)] : [];
  });
}

/** Asks lsof, which macOS has. Its exit code is 0 if it finds a listener of the user. */
function hasOwnListener(port: number, uid: number): Promise<boolean> {
  const args = ['-nP', '-a', '-u', String(uid), `-iTCP@127.0.0.1:${port}`, '-sTCP:LISTEN', '-t'];
  return new Promise((resolve) => {
    execFile('lsof', args, { timeout: LSOF_MS }, (error) => resolve(error === null));
  });
}
