/** Runs `npm start` until its printed command has answered a stream: `node slow-start.ts PORT`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { NODE, ROOT } from './where.ts';

const begunAt = performance.now();
const since = () => `${((performance.now() - begunAt) / 1_000).toFixed(1)} s`;
const demo = spawn(NODE, ['start.ts', '--port', process.argv[2] ?? '0'], {
  cwd: ROOT,
  stdio: ['ignore', 'pipe', 'inherit'],
});
const exited = once(demo, 'exit');
let said = '';
const up = new Promise<void>((resolve, reject) => {
  demo.stdout.setEncoding('utf8').on('data', (piece: string) => {
    said += piece;
    if (said.includes('Press Ctrl-C')) resolve();
  });
  neverRejects(exited.then(() => reject(new Error(`it ended:\n${said}`))));
});
await up;
console.log(`its URL after ${since()}`);
const [, curl = ''] = /\n {2}(curl [\s\S]*?)\n\n/.exec(said) ?? [];
const answer = await text(spawn('sh', ['-c', curl], { stdio: ['ignore', 'pipe', 'inherit'] }).stdout);
console.log(`its answer after ${since()}`);
demo.kill('SIGINT');
await exited;
if (!answer.includes('data: [DONE]')) {
  console.error(`no whole answer:\n${answer}`);
  process.exitCode = 1;
}
