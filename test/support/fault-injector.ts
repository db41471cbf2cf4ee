/**
 * Preloaded into a process (`node --import`). From the first SIGWINCH on, each place that spawns or calls a file
 * function fails once, in one of its first calls, and sockets break. A place is a line of our code. FAULT_SEED decides
 * the call and the error. Each fault is a line of FAULT_LOG.
 */
import childProcess from 'node:child_process';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import net, { type Socket } from 'node:net';
import { promisify } from 'node:util';
import { seeded } from './random.ts';
import { ROOT } from './where.ts';

/** A place fails once, in one of its first calls: this is their number. */
const TIMES = 3;
/** Maximum number of broken sockets, because retries must succeed in the end. */
const SOCKETS_MAX = 20;
/** A socket that breaks during a transfer breaks in one of its first writes: this is their number. */
const WRITES = 12;
/** Existing sockets break within this time. */
const SOON_MS = 2_000;
/** A port on which nothing listens. */
const NOWHERE = 1;
/** Matches lines of our code in a stack trace. */
const PLACE = new RegExp(`${ROOT}((?:agent|shared|dist)/[^):]+:\\d+)`);

const FILE_CODES = ['EIO', 'ENOSPC', 'EACCES', 'ESTALE', 'EMFILE'];
const SPAWN_CODES = ['EAGAIN', 'ENOMEM', 'ETXTBSY', 'EMFILE'];
const SOCKET_CODES = ['ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ECONNREFUSED'];

type Call = (this: unknown, ...args: unknown[]) => unknown;
type Kind = 'spawn' | 'file' | 'socket';

const random = seeded(Number(process.env.FAULT_SEED ?? '1'));
const log = process.env.FAULT_LOG ?? '/dev/null';
const append = fs.appendFileSync;
/** By place in the code: the number of calls until it fails; 0: it has failed. */
const places = new Map<string, number>();
let armed = false;
let broken = 0;

function among<T>(all: readonly T[]): T {
  return all[Math.floor(random() * all.length)] as T;
}

/** Writes a line to the log. Without a fault, because appending calls functions that are replaced here. */
function note(line: string): void {
  armed = false;
  append(log, `${line}\n`);
  armed = true;
}

function faultOf(kind: Kind, what: string, codes: readonly string[]): NodeJS.ErrnoException {
  const code = among(codes);
  note(`${kind} ${what} ${code}`);
  return Object.assign(new Error(`${code}: injected, ${what}`), { code, errno: -5, syscall: 'injected' });
}

/** The fault for this call, if one is due. */
function dueFault(kind: 'spawn' | 'file', name: string): NodeJS.ErrnoException | undefined {
  if (!armed) return undefined;
  const place = PLACE.exec(new Error('where').stack ?? '')?.[1];
  if (place === undefined) return undefined;
  const what = `${name} at ${place}`;
  const left = places.get(what) ?? 1 + Math.floor(random() * TIMES);
  if (left > 0) places.set(what, left - 1);
  return left === 1 ? faultOf(kind, what, kind === 'spawn' ? SPAWN_CODES : FILE_CODES) : undefined;
}

/** Replaces functions of a module by `make(original)`, and keeps their properties. */
function replace(module: object, names: readonly string[], make: (name: string, original: Call) => Call): void {
  const table = module as Record<string, unknown>;
  for (const name of names) {
    const original = table[name];
    if (typeof original !== 'function') continue;
    table[name] = Object.assign(make(name, original as Call), original);
  }
}

function throwing(kind: 'spawn' | 'file'): (name: string, original: Call) => Call {
  return (name, original) =>
    function (...args) {
      const fault = dueFault(kind, name);
      if (fault !== undefined) throw fault;
      return original.apply(this, args);
    };
}

function rejecting(name: string, original: Call): Call {
  return function (...args) {
    const fault = dueFault('file', `promises.${name}`);
    return fault === undefined ? original.apply(this, args) : Promise.reject(fault);
  };
}

function callingBack(name: string, original: Call): Call {
  return function (...args) {
    const done = args.at(-1);
    const fault = typeof done === 'function' ? dueFault('file', name) : undefined;
    if (fault === undefined) return original.apply(this, args);
    process.nextTick(done as Call, fault);
    return undefined;
  };
}

const FILE_CALLS = [
  ...['access', 'appendFile', 'chmod', 'copyFile', 'link', 'lstat', 'mkdir', 'mkdtemp', 'open', 'opendir', 'readdir'],
  ...['readFile', 'readlink', 'realpath', 'rename', 'rm', 'rmdir', 'stat', 'statfs', 'symlink', 'truncate', 'unlink'],
  ...['utimes', 'writeFile', 'read', 'write', 'fsync', 'ftruncate'],
];

replace(
  fs,
  FILE_CALLS.map((name) => `${name}Sync`),
  throwing('file'),
);
replace(fs, FILE_CALLS, callingBack);
replace(fs.promises, FILE_CALLS, rejecting);
replace(childProcess, ['spawn', 'spawnSync'], throwing('spawn'));
const { execFile } = childProcess;
replace(childProcess, ['execFile'], throwing('spawn'));
const promised = promisify(execFile) as unknown as Call;
Object.defineProperty(childProcess.execFile, promisify.custom, {
  value: (...args: unknown[]) => {
    const fault = dueFault('spawn', 'execFile');
    return fault === undefined ? promised(...args) : Promise.reject(fault);
  },
});

/** Breaks a socket like a failure of its other end. */
function breakOff(socket: Socket, when: string): void {
  if (socket.destroyed || broken >= SOCKETS_MAX) return;
  broken++;
  socket.destroy(faultOf('socket', `${when} ${socket.remotePort ?? ''}`.trim(), SOCKET_CODES));
}

/** Breaks the socket in one of its next writes, if it makes so many writes. */
function doom(socket: Socket, when: string): void {
  let left = 1 + Math.floor(random() * WRITES);
  const write = socket.write.bind(socket) as Call;
  socket.write = function (this: unknown, ...args: unknown[]) {
    left--;
    if (left === 0) process.nextTick(breakOff, socket, when);
    return write(...args) as boolean;
  } as Socket['write'];
}

const connect = net.Socket.prototype.connect as Call;
net.Socket.prototype.connect = function (this: Socket, ...args: unknown[]) {
  if (!armed) return connect.apply(this, args) as Socket;
  const how = random();
  if (how < 0.2 && broken < SOCKETS_MAX) {
    broken++;
    note('socket connect ECONNREFUSED');
    return connect.call(this, { host: '127.0.0.1', port: NOWHERE }) as Socket;
  }
  if (how < 0.6) doom(this, 'write to');
  return connect.apply(this, args) as Socket;
} as Socket['connect'];

const emit = net.Server.prototype.emit as Call;
net.Server.prototype.emit = function (this: unknown, event: string, ...args: unknown[]) {
  const [socket] = args;
  if (armed && event === 'connection' && socket instanceof net.Socket && random() < 0.4) doom(socket, 'answer to');
  return emit.call(this, event, ...args) as boolean;
} as typeof net.Server.prototype.emit;

syncBuiltinESMExports();

/** All handles that keep the process alive: Node has no other list of sockets. */
function standing(): Socket[] {
  const handles: unknown = '_getActiveHandles' in process && (process._getActiveHandles as () => unknown)();
  const all: unknown[] = Array.isArray(handles) ? handles : [];
  return all.filter((one): one is Socket => one instanceof net.Socket && one.remoteAddress !== undefined);
}

process.on('SIGWINCH', () => {
  armed = true;
  for (const socket of standing()) setTimeout(breakOff, random() * SOON_MS, socket, 'standing').unref();
});
