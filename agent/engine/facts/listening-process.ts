/**
 * Finds the process that listens at an engine's address, to read its command line. An engine that this agent did not
 * start has flags that it does not report, such as vLLM's `--quantization`. Linux only, and only processes of this
 * user.
 */
import { readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { engineKind } from '../engine-kinds.ts';
import { withRegularFile } from './open-regular-file.ts';

export interface EngineProcessInfo {
  command: string[];
  /** Variables that name the hub's cache. Other variables are not kept. */
  env: Readonly<Record<string, string | undefined>>;
  directory: string | undefined;
}

const VARIABLES = ['HOME', 'HF_HOME', 'HF_HUB_CACHE', 'XDG_CACHE_HOME'];

/** Maximum size of a file below /proc. A machine with 100,000 connections has 15 MiB of them in net/tcp. */
const FILE_MAX_BYTES = 32 * 1024 * 1024;
const COMMAND_MAX_BYTES = 128 * 1024;
/** Maximum numbers of processes and of open files that are looked at. */
const PROCESSES_MAX = 20_000;
const FILES_MAX = 200_000;
/** The process that listens may have replaced its own command line by a title, but not that of its parent. */
const ANCESTORS_MAX = 3;

/** Undefined if no process of this user listens at `port`, or the process is not a known engine. Never rejects. */
export async function listeningEngine(port: number, proc = '/proc'): Promise<EngineProcessInfo | undefined> {
  const sockets = await listeningSockets(port, proc);
  if (sockets.size === 0) return undefined;
  let pid = await holderOf(sockets, proc);
  for (let depth = 0; pid !== undefined && pid > 1 && depth <= ANCESTORS_MAX; depth++) {
    const command = (await text(join(proc, `${pid}`, 'cmdline'), COMMAND_MAX_BYTES))?.split('\0').slice(0, -1) ?? [];
    if (engineKind(command) !== undefined) {
      const environment = await text(join(proc, `${pid}`, 'environ'), FILE_MAX_BYTES);
      const directory = await readlink(join(proc, `${pid}`, 'cwd')).catch(() => undefined);
      return { command, env: cacheVariables(environment ?? ''), directory };
    }
    const parent = /^PPid:\s*(\d{1,10})$/m.exec((await text(join(proc, `${pid}`, 'status'), COMMAND_MAX_BYTES)) ?? '');
    pid = parent?.[1] === undefined ? undefined : Number(parent[1]);
  }
  return undefined;
}

/** Inodes of the sockets that listen at `port`, from lines such as `0: 0100007F:1F40 00000000:0000 0A … INODE …`. */
async function listeningSockets(port: number, proc: string): Promise<Set<string>> {
  const found = new Set<string>();
  const wanted = port.toString(16).toUpperCase().padStart(4, '0');
  for (const file of ['tcp', 'tcp6']) {
    for (const line of ((await text(join(proc, 'net', file), FILE_MAX_BYTES)) ?? '').split('\n')) {
      const [, local = '', , state, , , , , , inode] = line.trim().split(/\s+/);
      if (state === '0A' && local.endsWith(`:${wanted}`) && inode !== undefined && inode !== '0') found.add(inode);
    }
  }
  return found;
}

/** The process with the lowest number that has one of the sockets open: workers inherit the socket of their parent. */
async function holderOf(sockets: ReadonlySet<string>, proc: string): Promise<number | undefined> {
  const pids = (await readdir(proc).catch(() => [])).filter((name) => /^\d{1,10}$/.test(name)).map(Number);
  let left = FILES_MAX;
  for (const pid of pids.sort((a, b) => a - b).slice(0, PROCESSES_MAX)) {
    const folder = join(proc, `${pid}`, 'fd');
    // Fails for processes of other users.
    for (const name of await readdir(folder).catch(() => [])) {
      if (left-- <= 0) return undefined;
      const target = await readlink(join(folder, name)).catch(() => '');
      const inode = /^socket:\[(\d+)\]$/.exec(target)?.[1];
      if (inode !== undefined && sockets.has(inode)) return pid;
    }
  }
  return undefined;
}

function cacheVariables(environment: string): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const entry of environment.split('\0')) {
    const name = VARIABLES.find((one) => entry.startsWith(`${one}=`));
    if (name !== undefined) kept[name] = entry.slice(name.length + 1);
  }
  return kept;
}

/** Files below /proc have no size, so they are read until their end. */
function text(path: string, maxBytes: number): Promise<string | undefined> {
  return withRegularFile(path, async (file) => {
    const pieces: Buffer[] = [];
    for (let bytes = 0; bytes < maxBytes; ) {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(64 * 1024), 0, 64 * 1024, null);
      if (bytesRead === 0) return Buffer.concat(pieces).toString('utf8');
      pieces.push(buffer.subarray(0, bytesRead));
      bytes += bytesRead;
    }
    return undefined;
  });
}
