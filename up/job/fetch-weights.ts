/**
 * Fetches the weights of a model before its job starts, for compute nodes without a way to the Internet: on the host, or
 * on this machine if the host has no way to the hub either. From here they travel through ssh.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { basename, dirname } from 'node:path';
import { createInterface } from 'node:readline';
import { Transform } from 'node:stream';
import { printable } from '../../shared/terminal/printable.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { type Host, type HostProcess, THIS_MACHINE } from '../host/host.ts';
import { shellQuoted } from '../host/shell-words.ts';
import { agentBundle } from '../install/program-files.ts';
import { UpError } from '../up-error.ts';

/** The agent's exit code if its machine has no way to the hub: EX_NOHOST of sysexits.h. */
const NO_HUB = 68;
/** What the agent prints last: its result, or why it failed. */
const LAST_MAX_CHARS = 500;
const MIB = 2 ** 20;
/** Interval of the progress of sending. */
const SHOWN_MS = 2_000;

interface WeightsFetch {
  host: Host;
  /** Command of the agent on the host; `~/` is the home directory there. */
  agent: readonly string[];
  /** Name of the repository at the hub. */
  model: string;
  /** Lines that run before the engine. They may set HF_HOME. */
  setup: readonly string[];
  /** Shows a step to the user. */
  step(text: string): void;
  /** Aborted by Ctrl-C and by `otela down`. */
  signal: AbortSignal;
}

/** @throws UpError */
export async function fetchWeights(fetch: WeightsFetch): Promise<void> {
  const { host, model, signal } = fetch;
  const where = host.host;
  signal.throwIfAborted();
  const there = await ran(host.spawn(fetchScript(fetch)), fetch, where);
  if (there.code === 0) return;
  if (there.code !== NO_HUB) throw fetchFailure(where, model, there.last);
  if (where === THIS_MACHINE)
    throw new UpError(`This machine has no way to the hub: ${there.last}`, 'Check the network.');
  const here = await ran(spawnFetch(await agentBundle(), model), fetch, THIS_MACHINE);
  if (here.code !== 0) throw fetchFailure(THIS_MACHINE, model, here.last);
  await sendSnapshot(fetch, here.out.trim());
}

function fetchScript({ agent, model, setup }: WeightsFetch): string {
  const command = [...agent.map(hostPath), 'weights', 'fetch', shellQuoted(model)].join(' ');
  return `${setupLines(setup)}\nexec ${command}`;
}

/** The lines must not print into the result. The check of the host has run them, so none fails here. */
const setupLines = (setup: readonly string[]) => setup.map((line) => `{ ${line}\n} >/dev/null`).join('\n');

const hostPath = (word: string) =>
  word.startsWith('~/') ? `"$HOME"/${shellQuoted(word.slice(2))}` : shellQuoted(word);

function spawnFetch(bundle: string, model: string): HostProcess {
  return spawn(process.execPath, [bundle, 'weights', 'fetch', model], { stdio: ['pipe', 'pipe', 'pipe'] });
}

/** Runs a fetch to its end, and shows its lines of progress. */
async function ran(child: HostProcess, { step, signal }: WeightsFetch, where: string) {
  step(`fetching the weights on ${where}`);
  onAbort(signal, () => child.kill());
  child.stdin.on('error', () => {}).end();
  let [out, last] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (piece: string) => {
    out = (out + piece).slice(-LAST_MAX_CHARS);
  });
  createInterface({ input: child.stderr }).on('line', (line) => {
    last = printable(line.slice(0, LAST_MAX_CHARS));
    step(`fetching the weights on ${where}: ${last}`);
  });
  const code = await endOf(child);
  signal.throwIfAborted();
  return { code, out, last };
}

/** Also acts if the signal came before. */
function onAbort(signal: AbortSignal, act: () => void): void {
  if (signal.aborted) act();
  else signal.addEventListener('abort', act, { once: true });
}

async function endOf(child: ChildProcess): Promise<number | null> {
  const [code] = await once(child, 'close');
  return typeof code === 'number' ? code : null;
}

function fetchFailure(where: string, model: string, said: string): UpError {
  return new UpError(
    `The weights of ${model} cannot be fetched on ${where}: ${said}`,
    `If its authors allow downloads only after a login, accept the terms at https://huggingface.co/${model}, then run hf auth login on ${where}.`,
  );
}

/** Files of one snapshot arrive under another name, so an engine never sees a part of them. */
function receiveScript({ setup }: WeightsFetch, folder: string, revision: string): string {
  const [at, name] = [shellQuoted(`${folder}/snapshots`), shellQuoted(revision)];
  return `${setupLines(setup)}
set -e; umask 077
cache=\${HF_HUB_CACHE:-\${HF_HOME:-\${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}/hub}
mkdir -p "$cache"; cd "$cache"
part=.otela-part.$$
trap 'rm -rf "$part"' EXIT
mkdir "$part"; tar -xf - -C "$part"
mkdir -p ${at} ${shellQuoted(`${folder}/refs`)}
rm -rf ${at}/${name}
mv "$part"/${at}/${name} ${at}/
mv "$part"/${shellQuoted(`${folder}/refs/main`)} ${shellQuoted(`${folder}/refs/main`)}`;
}

/** @param snapshot a directory `models--ORG--NAME/snapshots/REVISION` of this machine's cache */
export async function sendSnapshot(fetch: WeightsFetch, snapshot: string): Promise<void> {
  const { host, step, signal } = fetch;
  const [revision, path] = [basename(snapshot), dirname(dirname(snapshot))];
  const [folder, cache] = [basename(path), dirname(path)];
  // With `-h`, files take the place of the cache's links.
  const files = [`${folder}/refs/main`, `${folder}/snapshots/${revision}`];
  const tar = spawn('tar', ['-C', cache, '-chf', '-', ...files], { stdio: ['ignore', 'pipe', 'pipe'] });
  tar.stderr.resume();
  const counted = countingStream((bytes) =>
    step(`sending the weights to ${host.host}: ${Math.round(bytes / MIB)} MiB`),
  );
  // Without tar, the stream would never end.
  tar.once('error', () => counted.destroy());
  onAbort(signal, () => counted.destroy());
  const sending = host.send(receiveScript(fetch, folder, revision), tar.stdout.pipe(counted));
  const [packed, sent] = await Promise.allSettled([endOf(tar), sending.finally(() => tar.stdout.destroy())]);
  signal.throwIfAborted();
  if (packed.status === 'rejected')
    throw new UpError(`tar does not run on this machine: ${errorText(packed.reason)}`, 'Install tar.');
  if (sent.status === 'rejected') throw sent.reason;
  if (packed.value !== 0) throw new UpError(`${cache} cannot be read.`, 'Check the free memory and space here.');
}

function countingStream(show: (bytes: number) => void): Transform {
  let [bytes, shownMs] = [0, Number.NEGATIVE_INFINITY];
  return new Transform({
    transform(piece: Buffer, _, done) {
      bytes += piece.length;
      if (performance.now() - shownMs > SHOWN_MS) {
        shownMs = performance.now();
        show(bytes);
      }
      done(null, piece);
    },
  });
}
