/** Discouraged phrases become fewer: test/docs/prose.ts defines them, and prose.json has their number for each file. */
import { expect, it } from 'vitest';
import { allPhrases, countsOf, phrasesOf, readBaseline, risen } from './prose.ts';

it('no file has more discouraged phrases than before', () => {
  expect(risen(countsOf(allPhrases()), readBaseline())).toEqual([]);
});

it.each([
  ['a.md', 'A proxy of your own.', ['own']],
  ['a.md', 'Whoever runs it stops at once.', ['who', 'at-once']],
  ['a.md', 'Use `at once` here.', []],
  ['a.md', '```sh\nat once\n```', []],
  ['a.ts', '// The client leaves.\nconst a = "at once";', ['leave']],
  ['a.ts', '/**\n * Where no node is left.\n */\nconst mend = 1;', ['where']],
  ['a.ts', "const a = 1; // told by nobody\nconst url = 'http://who';", ['nobody', 'tell']],
  ['agent/a.ts', "throw new Error('told by nobody');", ['nobody', 'tell']],
  ['gateway/a.ts', "sql('SELECT id WHERE whose = ?');", []],
  ['dashboard/texts/en/a.ts', "  none: 'Nobody is here.',", ['nobody']],
  ['docs/reference/a.md', '| `--x` | of its own | |', ['own']],
  ['a.json', 'at once', []],
])('%s: %j', (path, text, rules) => {
  expect(phrasesOf(path, text).map(({ rule }) => rule)).toEqual(rules);
});

it('a number may fall and not rise, and a new file may take only what others lost', () => {
  const before = { 'a.md': 2, 'b.md': 1 };
  expect(risen({ 'a.md': 1 }, before)).toEqual([]);
  expect(risen({ 'a.md': 3 }, before)).toEqual([expect.stringContaining('a.md: 3 discouraged phrases, allowed 2')]);
  // Moved: b.md no longer exists.
  expect(risen({ 'a.md': 2, 'c.md': 1 }, before)).toEqual([]);
  expect(risen({ 'a.md': 2, 'c.md': 2 }, before)).toHaveLength(1);
  expect(risen({ 'a.md': 2, 'b.md': 1, 'c.md': 1 }, before)).toHaveLength(1);
});
