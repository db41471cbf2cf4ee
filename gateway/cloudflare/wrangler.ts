/** Runs wrangler, Cloudflare's tool, so that it never prompts. */
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import * as z from 'zod';

/** Maximum characters of output that are kept for error messages; a deployment prints about 10 KiB. */
const OUTPUT_MAX_CHARS = 256 * 1024;

/** wrangler exited with a code other than 0. */
export class WranglerError extends Error {
  /** Output of wrangler: stdout and stderr. */
  readonly output: string;

  constructor(args: readonly string[], code: number | null, output: string) {
    super(`wrangler ${args.join(' ')} exited with code ${code}:\n${output.trim()}`);
    this.output = output;
  }
}

/** Runs `wrangler ARGS`. Resolves with what it wrote to stdout. @throws WranglerError */
export type Wrangler = (args: readonly string[]) => Promise<string>;

/** Returns a function that runs the wrangler version of package.json, in the directory of the clone. */
export function wranglerIn(root: string, env: NodeJS.ProcessEnv): Wrangler {
  const main = mainOf();
  // `CI` disables prompts. The banner is hidden, because it would be printed before the JSON output.
  const quiet = {
    ...env,
    CI: 'true',
    WRANGLER_SEND_METRICS: 'false',
    WRANGLER_HIDE_BANNER: 'true',
    NO_COLOR: '1',
    FORCE_COLOR: '0',
  };
  return (args) =>
    new Promise((resolve, reject) => {
      const child = spawn(process.execPath, [main, ...args], {
        cwd: root,
        env: quiet,
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      let [out, all] = ['', ''];
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        out = (out + text).slice(-OUTPUT_MAX_CHARS);
        all = (all + text).slice(-OUTPUT_MAX_CHARS);
      });
      child.stderr.setEncoding('utf8').on('data', (text: string) => {
        all = (all + text).slice(-OUTPUT_MAX_CHARS);
      });
      child.once('error', reject);
      child.once('close', (code) => {
        if (code === 0) resolve(out);
        else reject(new WranglerError(args, code, all));
      });
    });
}

function mainOf(): string {
  const require = createRequire(import.meta.url);
  const manifest = require.resolve('wrangler/package.json');
  const { bin } = z.object({ bin: z.object({ wrangler: z.string() }) }).parse(require(manifest));
  return join(dirname(manifest), bin.wrangler);
}

/** Parses the JSON in the output, after any warnings. */
export function jsonFromOutput(text: string): unknown {
  const at = text.search(/^[[{]/m);
  return JSON.parse(at < 0 ? text : text.slice(at));
}
