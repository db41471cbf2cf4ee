/** Checks the listening port, and the URL that clients use. */
import { readdir, readFile, readlink } from 'node:fs/promises';
import { createServer } from 'node:net';
import { basename } from 'node:path';
import * as z from 'zod';
import { type CheckResult, checkFailed, checkPassed, checkWarning } from '../../../../shared/terminal/check-result.ts';
import { printable } from '../../../../shared/terminal/printable.ts';

const ANSWER_MS = 10_000;
/** The state LISTEN in /proc/net/tcp, from the kernel's include/net/tcp_states.h. */
const LISTENING = '0A';
/** Maximum characters of a process's name, which the process can choose. */
const PROGRAM_MAX_CHARS = 40;

/** @param running true if a gateway uses the data directory, so that it should also listen on the port */
export async function checkPort(host: string, port: number, running: boolean): Promise<CheckResult> {
  const what = `port ${port}`;
  const code = await tryToListen(host, port);
  if (code === undefined) {
    if (!running || port === 0) return checkPassed(what, `is free at ${host}`);
    return checkWarning(
      what,
      `is free at ${host}, although a gateway runs`,
      'Give the --host and --port with which it was started.',
    );
  }
  if (code === 'EADDRINUSE') {
    const holder = await holderOf(port);
    const found = `is used by ${holder?.shown ?? 'a process of another user'}`;
    if (running && (holder === undefined || holder.gateway)) return checkPassed(what, found);
    return checkFailed(
      what,
      found,
      `End that process, or choose another --port. To find the process, as root: ss -ltnp 'sport = :${port}'.`,
    );
  }
  if (code === 'EACCES')
    return checkFailed(
      what,
      'can be opened only by root',
      'Set AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit, or choose a port above 1023.',
    );
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND')
    return checkFailed(
      what,
      `${host} is not an address of this machine`,
      'Choose another --host; 0.0.0.0 or :: means all addresses.',
    );
  return checkFailed(what, `cannot be opened at ${host}: ${code}`, 'Choose another --host or --port.');
}

/** Tries to listen. Undefined if it worked; otherwise the error's code. */
function tryToListen(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error) => resolve('code' in error ? String(error.code) : error.message));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}

/**
 * Finds the process that listens on a port, by the inode of its socket (proc(5)). It is shown as `process PID (its
 * program)` if this user may see it.
 */
async function holderOf(port: number): Promise<{ shown: string; gateway: boolean } | undefined> {
  const tables = await Promise.all(
    ['tcp', 'tcp6'].map((name) => readFile(`/proc/net/${name}`, 'utf8').catch(() => '')),
  );
  const inodes = new Set<string>();
  for (const line of tables.join('\n').split('\n')) {
    const [, local = '', , state, , , , , , inode = ''] = line.trim().split(/\s+/);
    if (state === LISTENING && Number.parseInt(local.split(':')[1] ?? '', 16) === port) inodes.add(`socket:[${inode}]`);
  }
  for (const pid of (await readdir('/proc').catch(() => [])).filter((name) => /^\d+$/.test(name))) {
    const descriptors = await readdir(`/proc/${pid}/fd`).catch(() => []);
    const links = await Promise.all(descriptors.map((fd) => readlink(`/proc/${pid}/fd/${fd}`).catch(() => '')));
    if (!links.some((link) => inodes.has(link))) continue;
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
    // Arguments are not shown: the doctor's output may be sent to other people, and some programs take secrets as
    // arguments.
    const program = printable(basename(command.split(/[\0\s]/)[0] ?? '')).slice(0, PROGRAM_MAX_CHARS);
    return { shown: `process ${pid} (${program})`, gateway: command.includes('gateway') };
  }
  return undefined;
}

const healthSchema = z.object({ status: z.literal('ok') });

/** Checks that this machine reaches the gateway. Whether other machines reach it cannot be checked from here. */
export async function checkPublicUrl(text: string): Promise<CheckResult> {
  const what = 'public URL';
  let url: URL;
  try {
    url = new URL('/healthz', text);
  } catch {
    return checkFailed(what, `${text} is not a URL`, 'Give a URL such as https://gw.example.org.');
  }
  const secure = url.protocol === 'https:' || /^(localhost|127\.|\[::1\])/.test(url.hostname);
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(ANSWER_MS), redirect: 'manual' });
    const health = healthSchema.safeParse(await response.json().catch(() => undefined));
    if (!health.success)
      return checkFailed(
        what,
        `${url} answers ${response.status}, but is not an OpenTela gateway`,
        'Another server answers there: check the name, and the proxy in front of the gateway.',
      );
    if (!secure)
      return checkWarning(
        what,
        `${text} answers without TLS: keys are sent in clear`,
        'Set --tls-cert and --tls-key, or use a proxy with TLS.',
      );
    return checkPassed(what, `${text} answers, as seen from this machine`);
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause.message : String(error);
    return checkFailed(
      what,
      `${text} cannot be reached: ${cause}`,
      'Start the gateway; then check the name, the firewall and the certificate.',
    );
  }
}
