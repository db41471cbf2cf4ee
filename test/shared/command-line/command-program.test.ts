import { expect, test } from 'vitest';
import {
  type Command,
  commandErrorMessage,
  helpText,
  type Program,
  readCommand,
  UsageError,
} from '../../../shared/command-line/index.ts';

const SERVE: Command = {
  summary: 'serves',
  examples: '[--port PORT]\n\n  otela-test serve --port 1',
  flags: {
    port: { value: 'PORT', default: '80', help: 'where' },
    process: { value: 'COMMAND…', rest: true, help: 'the same as --' },
  },
  run: () => 0,
};
const PROGRAM: Program = {
  name: 'otela-test',
  version: '1.2.3',
  about: 'A program.',
  exitCodes: 'Exit codes: 0 done.',
  commands: { serve: SERVE },
};
const asked = (...argv: string[]) => readCommand(PROGRAM, argv);
const printed = (...argv: string[]) => {
  const answer = asked(...argv);
  if (answer.kind !== 'print') throw new Error('it runs');
  return answer.text;
};

test('a command gets the words behind its name', () => {
  expect(asked('serve', '--port', '1')).toEqual({ kind: 'run', command: SERVE, args: ['--port', '1'] });
});

test('help comes by four ways, but not out of another program’s command line', () => {
  const help = helpText(PROGRAM, 'serve');
  expect(help).toMatch(/^otela-test serve \[--port PORT\]/);
  expect(help).toContain('  --port PORT         where [80]\n');
  expect(help).toMatch(/Exit codes: 0 done\.$/);
  for (const argv of [
    ['serve', '--help'],
    ['serve', '--nonsense', '-h'],
    ['help', 'serve'],
  ])
    expect(printed(...argv)).toBe(help);
  for (const argv of [
    ['serve', '--', '--help'],
    ['serve', '--process', 'x', '-h'],
    ['serve', '--process=x', '-h'],
  ])
    expect(asked(...argv).kind).toBe('run');
  for (const argv of [['help'], ['--help'], ['-h']]) expect(printed(...argv)).toContain('otela-test COMMAND --help');
});

test('every program has a version, completion and help', () => {
  expect(printed('version')).toBe('otela-test 1.2.3');
  expect(printed('--version')).toBe('otela-test 1.2.3');
  expect(JSON.parse(printed('version', '--json'))).toEqual({ version: '1.2.3' });
  expect(printed('completion', 'bash')).toContain('complete -F _otela_test otela-test');
  expect(printed('completion', '--help')).toContain('source <(otela-test completion bash)');
  expect(printed('help')).toMatch(/serve .*\n.*completion .*\n.*version .*\n.*help /);
});

test.each([
  [[], 'a command is missing; the commands are serve, completion, version, help'],
  [['sevre'], 'unknown command "sevre"; did you mean serve?'],
  [['constructor'], 'unknown command "constructor"; the commands are serve, completion, version, help'],
  [['help', 'sevre'], 'unknown command "sevre"; did you mean serve?'],
  [['version', 'x'], 'unexpected argument "x"'],
  [['completion', 'tcsh'], 'a shell is missing: otela-test completion bash|zsh|fish'],
  [['completion', 'bash', 'x'], 'unexpected argument "x"'],
])('%j is refused', (argv, words) => {
  expect(() => asked(...argv)).toThrow(new UsageError(words));
});

test('a complaint says where to read on, where the line is at fault', () => {
  const wrong = new UsageError('no');
  expect(commandErrorMessage(PROGRAM, ['serve', 'x'], wrong)).toBe('otela-test: no\nTry: otela-test serve --help');
  expect(commandErrorMessage(PROGRAM, ['sevre'], wrong)).toBe('otela-test: no\nTry: otela-test --help');
  expect(commandErrorMessage(PROGRAM, ['serve'], new Error('disk full'))).toBe('otela-test: disk full');
});
