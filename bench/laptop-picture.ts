/**
 * `npm run picture:laptop`: records a terminal in which a person follows docs/quickstart-laptop.md on a real sshd and a
 * real Slurm, and draws docs/pictures/laptop.svg from it. Needs root, sshd, Slurm and script(1).
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { terminalSvg } from '../shared/text/terminal-svg.ts';
import { Laptop, MODEL } from '../test/slurm/laptop.ts';
import { endAll, Managed } from '../test/support/processes.ts';
import { NODE, OTELA_MAIN, ROOT } from '../test/support/where.ts';

const COLUMNS = 100;
/** How long a person looks at an answer before the next command. */
const LOOKS_MS = 2_500;
const FILE = 'docs/pictures/laptop.svg';

const UP = `otela up ${MODEL} --host cluster --time 00:30:00`;
/** The typed commands. `^C` after one: the person ends the command when it has printed this text. */
const TYPED: readonly { command: string; until?: RegExp }[] = [
  { command: UP, until: /otela down ends it\./g },
  { command: 'otela ls' },
  { command: UP, until: /otela down ends it\./g },
  { command: 'otela down --purge' },
];

/** The shell of the session. It survives Ctrl-C, as an interactive one does. */
const SESSION = [
  "trap 'echo' INT",
  `stty cols ${COLUMNS} rows 40`,
  ...TYPED.flatMap(({ command }) => [`printf '$ '; sleep 0.5; echo '${command}'; sleep 0.5`, command]),
].join('\n');

async function recorded(laptop: Laptop): Promise<[number, string][]> {
  await writeFile(join(laptop.home, 'bin/otela'), `#!/bin/sh\nexec ${NODE} ${OTELA_MAIN} "$@"\n`, { mode: 0o755 });
  const file = join(laptop.home, 'session.sh');
  await writeFile(file, SESSION);
  const session = new Managed(['script', '-qefc', `bash ${file}`, '/dev/null'], {
    label: 'session',
    env: { ...laptop.env, TERM: 'xterm' },
    stdin: 'pipe',
  });
  const from = performance.now();
  const events: [number, string][] = [];
  let all = '';
  let ended = 0;
  const ends = TYPED.flatMap(({ until }) => until ?? []);
  session.child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    events.push([(performance.now() - from) / 1_000, text]);
    all += text;
    const [wanted] = ends;
    if (wanted === undefined || [...all.matchAll(wanted)].length <= ended) return;
    ends.shift();
    ended += 1;
    setTimeout(() => session.child.stdin?.write('\u0003'), LOOKS_MS);
  });
  await session.end(180_000);
  return events;
}

try {
  const laptop = await Laptop.open();
  // Makes the agent's file, which a person does once.
  const first = laptop.up('--time', '10');
  await first.line(/export OPENAI_BASE_URL/, 120_000);
  await laptop.ran('down');
  await first.end(30_000);
  const events = await recorded(laptop);
  // The key is of a gateway that is gone. It is left out, so that no search for secrets finds it.
  const shown = events.map(([seconds, text]): [number, string] => [
    seconds,
    text.replaceAll(laptop.home, '~').replaceAll(/sk-[\w-]{8,}/g, 'sk-…'),
  ]);
  await writeFile(join(ROOT, FILE), terminalSvg({ columns: COLUMNS, events: shown }));
  console.log(`wrote ${FILE}: ${shown.length} pieces in ${Math.round(shown.at(-1)?.[0] ?? 0)} s`);
} finally {
  await endAll();
}
