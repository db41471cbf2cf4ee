import { completionScript, isShell, SHELLS } from '../../shared/terminal/completion.ts';
import { FactoryError } from '../errors.ts';
import { EXIT_DONE } from './exit.ts';
import { COMMANDS, type CommandName, commandOf } from './flags.ts';
import type { Io } from './io.ts';

export function completionCommand(shell: string | undefined, io: Io): number {
  if (!isShell(shell)) throw new FactoryError('usage', `which shell? otela-factory completion ${SHELLS.join('|')}`);
  const names = Object.keys(COMMANDS).filter((name): name is CommandName => name in COMMANDS);
  const commands = names.map((name) => {
    const { summary, flags } = commandOf(name);
    return {
      name,
      summary,
      ...(name === 'completion' ? { takes: SHELLS } : name === 'help' ? { takes: names } : {}),
      flags: [
        ...Object.entries(flags).map(([flag, one]) => ({
          name: flag,
          help: one.help,
          ...(one.takes === undefined ? {} : { takes: one.takes }),
        })),
        { name: 'help' },
      ],
    };
  });
  io.out(completionScript(shell, { name: 'otela-factory', commands }).trimEnd());
  return EXIT_DONE;
}
