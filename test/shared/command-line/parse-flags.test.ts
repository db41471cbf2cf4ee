import { expect, test } from 'vitest';
import { type Flags, parseLine, UsageError } from '../../../shared/command-line/index.ts';

const FLAGS = {
  port: { value: 'PORT', default: '80', help: 'where' },
  'tls-key': { value: 'FILE', help: 'which' },
  label: { value: 'K=V', repeat: true, help: 'more' },
  quiet: { short: 'q', help: 'says less' },
} as const satisfies Flags;
const RUNS = { ...FLAGS, process: { value: 'COMMAND…', rest: true, help: 'the same as --' } } as const satisfies Flags;

test('values come by their kind: the last one, all of them, the default, a switch', () => {
  const { values, given } = parseLine(['--port', '1', '--port=2', '--label', 'a=b', '--label=c=d', '-q'], FLAGS);
  expect(values).toEqual({ port: '2', 'tls-key': undefined, label: ['a=b', 'c=d'], quiet: true });
  expect([...given]).toEqual([
    ['port', ['2']],
    ['label', ['a=b', 'c=d']],
    ['quiet', ['true']],
  ]);
  expect(parseLine([], FLAGS).values).toEqual({ port: '80', 'tls-key': undefined, label: [], quiet: false });
});

test('a value may be empty, hold = and line breaks, and begin with a dash where = stands before it', () => {
  expect(parseLine(['--tls-key='], FLAGS).values['tls-key']).toBe('');
  expect(parseLine(['--tls-key=-a=\nb'], FLAGS).values['tls-key']).toBe('-a=\nb');
});

test.each([
  [['--prot', '1'], 'unknown flag --prot; did you mean --port?'],
  [['--nothing-like-it'], 'unknown flag --nothing-like-it'],
  [['--constructor'], 'unknown flag --constructor'],
  [['-x'], 'unknown flag -x'],
  [['word'], 'unexpected argument "word"'],
  [['--port'], '--port needs a value'],
  [['--port', '--quiet'], '--port needs a value'],
  [['--port', '--', 'x'], '--port needs a value'],
  [['--quiet=1'], '--quiet does not accept a value'],
  [['--', 'x'], 'this command accepts no command after --'],
])('%j', (args, words) => {
  expect(() => parseLine(args, FLAGS)).toThrow(new UsageError(words));
});

test('as many words as the command takes, in order; the hint stands behind the refusal of the next', () => {
  expect(parseLine(['a', '--quiet', '-', 'b'], FLAGS, { words: 3 }).words).toEqual(['a', '-', 'b']);
  const hint = (words: readonly string[]) => `: ${words.join(' ')}`;
  expect(() => parseLine(['a', 'b', 'c'], FLAGS, { words: 1, hint })).toThrow('unexpected argument "b": a b c');
});

test('another program’s command line is not looked into', () => {
  const command = ['vllm', 'serve', '--port', '1', '--', '--nonsense'];
  for (const args of [
    ['--quiet', '--', ...command],
    ['--quiet', '--process', ...command],
    ['--quiet', '--process=vllm', ...command.slice(1)],
  ])
    expect(parseLine(args, RUNS)).toMatchObject({ command, values: { quiet: true, port: '80' } });
  expect(parseLine(['--'], RUNS).command).toEqual([]);
  expect(parseLine(['--quiet'], RUNS).command).toBeUndefined();
});

test('a word that begins with - stands behind --', () => {
  expect(parseLine(['--port', '9', '--', 'eth', '-S5U'], FLAGS, { words: 2 }).words).toEqual(['eth', '-S5U']);
  expect(() => parseLine(['--', 'eth', '-S5U'], FLAGS, { words: 1 })).toThrow('unexpected argument "-S5U"');
});
