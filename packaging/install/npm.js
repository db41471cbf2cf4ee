// @ts-check
/** npm, as the machine has it. Plain JavaScript, as all that runs before Node 24 is there. */
import { spawn } from 'node:child_process';
import { delimiter, join } from 'node:path';
import { ROOT } from './paths.js';

/** What an outer npm sets for its scripts, and an inner one would take for settings of its own. */
const OF_A_SCRIPT = /^npm_(config_(local_)?prefix|package|lifecycle)|^NODE_ENV$/i;

/** @param {NodeJS.ProcessEnv} environment */
export function outsideScript(environment) {
  const bin = join(ROOT, 'node_modules/.bin');
  const path = (environment.PATH ?? '').split(delimiter).filter((one) => one !== bin);
  const kept = Object.entries(environment).filter(([name]) => !OF_A_SCRIPT.test(name));
  return { ...Object.fromEntries(kept), PATH: path.join(delimiter), npm_config_update_notifier: 'false' };
}

/**
 * Runs npm under the Node that it came with: the one in node_modules/.bin could be replaced while it runs.
 * @param {string[]} args
 * @param {{ cwd?: string, quiet?: boolean }} [options]
 * @returns {Promise<string>} what it printed
 * @throws {Error} with what it printed, where it fails
 */
export function npm(args, { cwd = ROOT, quiet = true } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn('npm', args, {
      cwd,
      env: outsideScript(process.env),
      stdio: ['ignore', quiet ? 'pipe' : 'inherit', quiet ? 'pipe' : 'inherit'],
    });
    let said = '';
    let errors = '';
    child.stdout?.setEncoding('utf8').on('data', (piece) => {
      said += piece;
    });
    child.stderr?.setEncoding('utf8').on('data', (piece) => {
      errors += piece;
    });
    child.once('error', reject);
    child.once('close', (code) => {
      if (code === 0) resolve(said.trim());
      else reject(new Error(`npm ${args.join(' ')} ended with ${code}\n${errors}`.trim()));
    });
  });
}
