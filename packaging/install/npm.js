// @ts-check
/** Runs the machine's npm. Plain JavaScript, like everything that runs before Node 24 is installed. */
import { spawn } from 'node:child_process';
import { delimiter, join } from 'node:path';
import { ROOT } from './paths.js';

/** Variables that an outer npm sets for its scripts; an inner npm would read them as its own settings. */
const OF_A_SCRIPT = /^npm_(config_(local_)?prefix|package|lifecycle)|^NODE_ENV$/i;

/** @param {NodeJS.ProcessEnv} environment */
export function outsideScript(environment) {
  const bin = join(ROOT, 'node_modules/.bin');
  const path = (environment.PATH ?? '').split(delimiter).filter((one) => one !== bin);
  const kept = Object.entries(environment).filter(([name]) => !OF_A_SCRIPT.test(name));
  return { ...Object.fromEntries(kept), PATH: path.join(delimiter), npm_config_update_notifier: 'false' };
}

/**
 * Runs npm under its own Node, because the one in node_modules/.bin could be replaced meanwhile.
 * @param {string[]} args
 * @param {{ cwd?: string, quiet?: boolean }} [options]
 * @returns {Promise<string>} its output
 * @throws {Error} with its output, if it fails
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
