#!/usr/bin/env node
/** `otela-gateway`. */
import manifest from '../../package.json' with { type: 'json' };
import { type CompletedProgram, completionScript, isShell, SHELLS } from '../../shared/terminal/completion.ts';
import { wrongUse } from '../../shared/terminal/wrong-use.ts';
import { nearest } from '../../shared/text/nearest.ts';
import { CommandError, EXIT_DONE, EXIT_FAILED, EXIT_USAGE, helpOf, UsageError } from '../command.ts';
import { IssuerError } from '../issuer/issuer.ts';
import { COMMANDS, overview } from './commands.ts';
import { watchReader } from './reader.ts';

const EXTRA = ['completion', 'version', 'help'];

async function main([word, ...args]: string[]): Promise<number> {
  const asked = args.includes('--help') || args.includes('-h');
  const command = word !== undefined && Object.hasOwn(COMMANDS, word) ? COMMANDS[word] : undefined;
  if (word !== undefined && command !== undefined) {
    if (!asked) return command.run(args);
    console.log(helpOf(word, command));
    return EXIT_DONE;
  }
  switch (word) {
    case 'completion':
      return completion(args[0]);
    case 'version':
    case '--version':
      console.log(
        args.includes('--json') ? JSON.stringify({ version: manifest.version }) : `otela-gateway ${manifest.version}`,
      );
      return EXIT_DONE;
    case 'help':
    case '--help':
    case '-h': {
      const [about] = args.filter((one) => !one.startsWith('-'));
      console.log(about === undefined || EXTRA.includes(about) ? overview() : helpAbout(about));
      return EXIT_DONE;
    }
    default:
      throw unknown(word);
  }
}

function helpAbout(word: string): string {
  const command = Object.hasOwn(COMMANDS, word) ? COMMANDS[word] : undefined;
  if (command === undefined) throw unknown(word);
  return helpOf(word, command);
}

function unknown(word: string | undefined): UsageError {
  const names = [...Object.keys(COMMANDS), ...EXTRA];
  if (word === undefined) return new UsageError(`a command is missing; there are ${names.join(', ')}`);
  const near = nearest(word, names);
  return new UsageError(
    `there is no command "${word}"${near === undefined ? `; there are ${names.join(', ')}` : `; did you mean ${near}?`}`,
  );
}

function completion(shell: string | undefined): number {
  if (!isShell(shell)) throw new UsageError(`usage: otela-gateway completion ${SHELLS.join('|')}`);
  process.stdout.write(completionScript(shell, completed()));
  return EXIT_DONE;
}

/** The table as completion wants it. */
function completed(): CompletedProgram {
  const known = Object.entries(COMMANDS).map(([name, { summary, verbs, takes, flags }]) => ({
    name,
    summary,
    ...(verbs === undefined ? (takes === undefined ? {} : { takes }) : { takes: verbs }),
    flags: [
      ...Object.entries(flags).map(([flag, { type, takes: value = 'word', help }]) => ({
        name: flag,
        ...(type === 'boolean' ? {} : { takes: value }),
        help,
      })),
      { name: 'help', help: 'says more' },
    ],
  }));
  const extra = [
    { name: 'completion', summary: 'for a shell', takes: SHELLS, flags: [] },
    { name: 'version', summary: 'of this program', flags: [] },
    { name: 'help', summary: 'of a command', takes: Object.keys(COMMANDS), flags: [] },
  ];
  return { name: 'otela-gateway', commands: [...known, ...extra] };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const argv = process.argv.slice(2);
watchReader();
try {
  process.exitCode = await main(argv);
} catch (error) {
  const misused = wrongUse(error);
  const isWrongUse = error instanceof UsageError || misused !== undefined;
  const about = argv[0] !== undefined && Object.hasOwn(COMMANDS, argv[0]) ? `${argv[0]} ` : '';
  console.error(
    `otela-gateway: ${misused ?? messageOf(error)}${isWrongUse ? `\nTry: otela-gateway ${about}--help` : ''}`,
  );
  const expected = error instanceof CommandError || error instanceof IssuerError;
  if (!isWrongUse && !expected && process.env.DEBUG !== undefined) console.error(error);
  process.exitCode = isWrongUse ? EXIT_USAGE : error instanceof CommandError ? error.exitCode : EXIT_FAILED;
}
