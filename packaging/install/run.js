// @ts-check
/**
 * `node packaging/install/run.js [--rest] [--pinned] [FILE …]` runs FILE, a program of this clone, under Node 24 or
 * later. It first fetches what is missing: Node itself, and with `--rest` the packages for tests and checks. Without
 * FILE it only fetches. Plain JavaScript: it runs under the machine's own Node, from 20 on.
 */
import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { nodeProgram } from './node.js';
import { installRest } from './rest.js';

/** @param {string} what */
const tell = (what) => console.error(`opentela: ${what}`);

/**
 * @param {string} node
 * @param {string[]} command
 * @returns {Promise<number>} its exit code
 */
function runUnder(node, command) {
  const child = spawn(node, command, { stdio: 'inherit' });
  /** @type {NodeJS.Signals[]} */
  const passedOn = ['SIGINT', 'SIGTERM', 'SIGHUP'];
  for (const signal of passedOn) process.on(signal, () => child.kill(signal));
  return new Promise((done, failed) => {
    child.once('error', failed);
    child.once('exit', (code, signal) => done(code ?? 128 + constants.signals[signal ?? 'SIGTERM']));
  });
}

/** @param {string[]} words */
async function main(words) {
  const first = words.findIndex((word) => !word.startsWith('--'));
  const flags = first < 0 ? words : words.slice(0, first);
  const [file, ...args] = words.slice(flags.length);
  const node = await nodeProgram({ any: !flags.includes('--pinned'), tell });
  if (flags.includes('--rest')) await installRest(tell);
  if (file === undefined) return;
  // npm sets it if development packages are omitted; tests and bundlers would read it as their own setting.
  delete process.env.NODE_ENV;
  const program = resolve(file);
  if (node !== process.execPath) {
    process.exitCode = await runUnder(node, [program, ...args]);
    return;
  }
  process.argv.splice(1, process.argv.length - 1, program, ...args);
  await import(pathToFileURL(program).href);
}

await main(process.argv.slice(2)).catch((error) => {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
});
