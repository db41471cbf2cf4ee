/**
 * Runs a function's process apart from the rest of this node: without other processes, without the agent's files, and
 * without network. Uses namespaces of the kernel through unshare(1), without privileges.
 */
import { statSync } from 'node:fs';
import { isAbsolute, resolve } from 'node:path';
import type { RunTool } from '../../host/run-tool.ts';
import { makeFunctionDirectory, removeFunctionDirectory } from './function-directory.ts';

/**
 * Runs in the new namespaces, in which it may mount. It replaces each hidden directory by an empty one, puts the shown
 * paths back in (all but the function's directory read-only), hides single files, drops the right to mount, and runs
 * the program. What it mounted cannot be unmounted by the program. The empty directories are in memory, so they are
 * bounded.
 */
const SCRIPT = `
set -eu
stage=$1 directory=$2 shown=$3 hidden=$4 masked=$5
shift 5
mount -t tmpfs -o mode=0700 tmpfs "$stage"
IFS='
'
number=0
for path in $directory $shown; do
  number=$((number + 1))
  if [ -d "$path" ]; then mkdir "$stage/$number"; else : > "$stage/$number"; fi
  mount --rbind "$path" "$stage/$number"
done
for path in $masked; do mount --bind /dev/null "$path"; done
for path in $hidden; do mount -t tmpfs -o mode=0755,size=1g,nr_inodes=100k tmpfs "$path"; done
number=0
for path in $directory $shown; do
  number=$((number + 1))
  if [ -d "$stage/$number" ]; then mkdir -p "$path"; else mkdir -p "\${path%/*}"; : > "$path"; fi
  mount --rbind "$stage/$number" "$path"
  [ "$number" = 1 ] && continue
  flags=$(findmnt -fnro VFS-OPTIONS --mountpoint "$path" | tail -1)
  mount -o "remount,bind,ro,\${flags#rw,}" "$path"
done
unset IFS
umount -l "$stage"
cd "$directory"
exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
`;

/** Directories in which the script may mount its list of shown paths. Nothing in them is visible meanwhile. */
const STAGES = ['/mnt', '/media', '/srv'];
/** Directories without which no program runs. They are never hidden. */
const SYSTEM = [
  '/',
  '/usr',
  '/bin',
  '/sbin',
  '/lib',
  '/lib64',
  '/etc',
  '/dev',
  '/proc',
  '/sys',
  '/run',
  '/opt',
  '/nix',
];

interface SandboxOptions {
  /** Directories of the agent's user, of the agent's state, and of other functions. */
  hidden: readonly string[];
  /** Files with secrets. */
  masked: readonly string[];
  network: boolean;
}

interface Inner {
  /** The function's directory, which it may write. */
  directory: string;
  /** Paths that the program reads. */
  shown: readonly string[];
}

export class FunctionSandbox {
  readonly #hidden: string[];
  readonly #masked: string[];
  readonly #network: boolean;

  constructor({ hidden, masked, network }: SandboxOptions) {
    const all = [...new Set(hidden.filter(isAbsolute).map((path) => resolve(path)))];
    const usable = all.filter((path) => !SYSTEM.includes(path) && isDirectory(path));
    // A directory in another hidden one is hidden with it.
    this.#hidden = usable.filter((path) => !usable.some((other) => other !== path && isBelow(path, other)));
    this.#masked = masked.filter((path) => isAbsolute(path) && isFile(path) && !this.#isHidden(path));
    this.#network = network;
  }

  /** Returns the command that runs `inner` in the sandbox. */
  wrap(inner: readonly string[], { directory, shown }: Inner): string[] {
    const visible = [...new Set(shown.filter(isAbsolute).map((path) => resolve(path)))].filter(
      (path) => exists(path) && this.#isHidden(path) && !this.#hidden.includes(path),
    );
    const shortest = visible.filter((path) => !visible.some((other) => other !== path && isBelow(path, other)));
    const used = [directory, ...shortest, ...this.#hidden, ...this.#masked];
    const stage = STAGES.find((path) => isDirectory(path) && !used.some((one) => one === path || isBelow(one, path)));
    return [
      'unshare',
      ...['--user', '--map-root-user', '--mount', '--pid', '--ipc', '--fork', '--kill-child', '--mount-proc'],
      ...(this.#network ? [] : ['--net']),
      ...['sh', '-c', SCRIPT, 'sh', stage ?? '/mnt', directory],
      ...[shortest.join('\n'), this.#hidden.join('\n'), this.#masked.join('\n')],
      ...inner,
    ];
  }

  #isHidden(path: string): boolean {
    return this.#hidden.some((hidden) => path === hidden || isBelow(path, hidden));
  }
}

/** Tries the sandbox. @returns why it cannot be used; undefined: it can */
export async function sandboxFault(run: RunTool, temporary: string): Promise<string | undefined> {
  const sandbox = new FunctionSandbox({ hidden: [temporary], masked: [], network: false });
  const directory = makeFunctionDirectory(temporary);
  try {
    const [file = '', ...args] = sandbox.wrap(['true'], { directory, shown: [] });
    const tried = await run(file, args);
    return tried.ok ? undefined : tried.reason;
  } finally {
    removeFunctionDirectory(directory);
  }
}

function isBelow(path: string, directory: string): boolean {
  return path.startsWith(directory === '/' ? '/' : `${directory}/`);
}

const stat = (path: string) => statSync(path, { throwIfNoEntry: false });
const exists = (path: string) => stat(path) !== undefined;
const isDirectory = (path: string) => stat(path)?.isDirectory() === true;
const isFile = (path: string) => stat(path)?.isFile() === true;
