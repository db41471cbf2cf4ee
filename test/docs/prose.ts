/**
 * Discouraged phrases in Markdown, in the generated reference (which has every help text), in the dashboard's texts and
 * in comments. prose.json has their number for each file, and a number may only fall.
 *
 *     npm run prose                  numbers of each rule
 *     npm run prose -- FILE …        each phrase of these files, and what to write
 *     npm run prose -- --write       lowers the numbers in prose.json to the current ones
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../support/where.ts';

export interface Rule {
  pattern: RegExp;
  /** What to write instead. */
  use: string;
}

const rule = (pattern: RegExp, use: string): Rule => ({ pattern, use });

/** The glossary explains them: docs/glossary.md#words-to-avoid. */
export const RULES: Readonly<Record<string, Rule>> = {
  own: rule(/\bof (?:its|their|your|our|my|one’s) own\b|\bof (?:ours|yours|theirs)\b/gi, 'its own, before the noun'),
  who: rule(/\b(?:who|whom|whose|whoever|whatever)\b/gi, 'the user, the caller, the owner'),
  nobody: rule(/\b(?:nobody|somebody|anybody|everybody)\b/gi, 'no client, a user, all users'),
  'that-one': rule(/\bthat one\b|\bthe one (?:that|which)\b/gi, 'the noun again'),
  'at-once': rule(/\bat once\b/gi, 'immediately, concurrently'),
  'what-is': rule(/\bwhat (?:\w+ ){0,3}(?:is|are|was|were|has|have|does|goes|comes|stands)\b/gi, 'the noun'),
  'so-long': rule(/\bso (?:long|many|few|often|much|soon)\b(?! as\b)/gi, 'the constant, or the number'),
  'is-none': rule(/(?<!\bthere )\b(?:is|are|was|were) (?:none|no)\b(?! (?:longer|more)\b)/gi, 'is not a, there is no'),
  where: rule(/\bwhere (?:it|no|none|an?|the|they|nothing|several|there|that|one)\b/gi, 'if'),
  'go-on': rule(/\b(?:go|goes|going|went|gone) on\b/gi, 'continue'),
  alone: rule(/(?<!\b(?:leave|leaves|left|let))\salone\b/gi, 'only, before the word'),
  tell: rule(/\b(?:tells?|told|telling)\b/gi, 'report, return, show'),
  mend: rule(/\bmend(?:s|ed|ing)?\b/gi, 'fix'),
  archaic: rule(/\b(?:anew|besides|likewise|alike|lately|whence|thereby)\b/gi, 'again, also, recently'),
  house: rule(
    /\b(?:rooms?|stor(?:y|ies)|knocks?|drips?|strangers?|shel(?:f|ves)|desks?|houses?)\b/gi,
    'see the glossary',
  ),
  'by-turns': rule(/\bby turns\b/gi, 'alternately'),
  stand: rule(/\b(?:stands?|stood) (?:still|in|on|behind|beside)\b/gi, 'is, stalls, follows'),
  leave: rule(/\bclients? (?:that |who )?(?:leaves?|left)\b/gi, 'disconnect'),
  unary: rule(/\bunary\b/gi, 'non-streaming'),
  itself: rule(/\bby (?:itself|themselves)\b/gi, 'automatically'),
  pronoun: rule(/(?:^|[.;] )(?:One|Those|Others|That|Which) (?:that|who|of|is|are|has|have)\b/gm, 'the noun'),
  else: rule(/[,;:] else\b/g, 'otherwise, in a sentence'),
  british: rule(
    /\b(?:behaviour|colour|licence|favour|centre|neighbour|honour)s?\b|\b(?:optim|serial|recogn|organ|author|normal|initial)is(?:e|es|ed|ing|ation)\b/gi,
    'American spelling',
  ),
};

/** Number of phrases by path from the root; only files that have some. */
export type Counts = Record<string, number>;

const BASELINE = join(ROOT, 'test/docs/prose.json');
/** These files quote the phrases themselves. */
const LEFT_OUT = /^(?:test\/docs\/prose\.(?:ts|test\.ts)|docs\/glossary\.md|dashboard\/api\/contract\.ts)$/;

/** Programs whose messages operators and users read. */
const PRODUCT = /^(?:agent|clients|factory|gateway|node|scheduler|shared)\/.*\.ts$/;
const SQL = /\b(?:SELECT|WHERE|UPDATE|DELETE|INSERT|CASE|JOIN|ORDER BY)\b/;

/** The prose of a file; all other lines are empty. Undefined: the file is not checked. */
export function proseOf(path: string, text: string): string[] | undefined {
  if (LEFT_OUT.test(path)) return undefined;
  if (path.endsWith('.md')) return markdown(text);
  if (/^dashboard\/texts\/(?:de|fr)\//.test(path)) return undefined;
  if (/^dashboard\/texts\/.*\.ts$/.test(path)) return text.split('\n');
  if (!/\.tsx?$/.test(path)) return undefined;
  const found = comments(text);
  if (!PRODUCT.test(path)) return found;
  return text.split('\n').map((line, at) => found[at] || messages(line));
}

/** String literals of at least two words, without SQL: messages, logs and help texts. */
function messages(line: string): string {
  const literals = [...line.matchAll(/(['"`])((?:\\.|(?!\1).)*)\1/g)].map(([, , literal = '']) =>
    literal.replaceAll(/\$\{[^}]*\}/g, '…'),
  );
  return literals.filter((literal) => /[a-z] [a-z]/.test(literal) && !SQL.test(literal)).join('. ');
}

/** The text without code. */
function markdown(text: string): string[] {
  let open = false;
  return text.split('\n').map((line) => {
    const fence = /^\s*```/.test(line);
    if (fence) open = !open;
    return open || fence ? '' : line.replaceAll(/`[^`]*`/g, '`').replaceAll(/\]\([^)]*\)/g, ']');
  });
}

function comments(text: string): string[] {
  let open = false;
  return text.split('\n').map((line) => {
    const starts = /^\s*\/\*/.test(line);
    const inside = open || starts;
    if (inside) open = !line.includes('*/');
    const [, trailing = ''] = /(?:^|[\s;,{(])\/\/ (.*)$/.exec(line) ?? [];
    return (inside ? line : trailing).replaceAll(/`[^`]*`/g, '`');
  });
}

export interface Found {
  path: string;
  line: number;
  rule: string;
  phrase: string;
}

export function phrasesOf(path: string, text: string): Found[] {
  const prose = (proseOf(path, text) ?? []).join('\n');
  if (prose.trim() === '') return [];
  const lineOf = (at: number) => prose.slice(0, at).split('\n').length;
  return Object.entries(RULES).flatMap(([id, { pattern }]) =>
    [...prose.matchAll(pattern)].map((match) => {
      const [phrase] = match;
      return { path, line: lineOf(match.index + phrase.length), rule: id, phrase: phrase.trim() };
    }),
  );
}

/** Phrases in every file that git tracks or would track. */
export function allPhrases(): Found[] {
  const listed = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], { cwd: ROOT, encoding: 'utf8' });
  return listed
    .split('\n')
    .filter((path) => /\.(?:md|tsx?)$/.test(path) && existsSync(join(ROOT, path)))
    .flatMap((path) => phrasesOf(path, readFileSync(join(ROOT, path), 'utf8')));
}

export function countsOf(found: readonly Found[]): Counts {
  const counts: Counts = {};
  for (const { path } of found) counts[path] = (counts[path] ?? 0) + 1;
  return counts;
}

export function readBaseline(): Counts {
  return existsSync(BASELINE) ? JSON.parse(readFileSync(BASELINE, 'utf8')) : {};
}

/**
 * Each number that rose. A file that is not in the baseline, because it is new, moved or split, may take what other
 * files lost since the baseline was written, so a move costs nothing.
 */
export function risen(now: Counts, before: Counts): string[] {
  let lost = 0;
  for (const [path, count] of Object.entries(before)) lost += Math.max(0, count - (now[path] ?? 0));
  return Object.entries(now).flatMap(([path, count]) => {
    const allowed = before[path] ?? Math.min(count, lost);
    if (before[path] === undefined) lost -= allowed;
    return count <= allowed
      ? []
      : [`${path}: ${count} discouraged phrases, allowed ${allowed}: npm run prose -- ${path}`];
  });
}

/** One line per file, so that two branches that improve different files merge. */
function textOf(counts: Counts): string {
  const lines = Object.keys(counts)
    .sort()
    .map((path) => `  ${JSON.stringify(path)}: ${counts[path]}`);
  return `{\n${lines.join(',\n')}\n}\n`;
}

function main(words: readonly string[]): void {
  const found = allPhrases();
  const now = countsOf(found);
  if (words.includes('--write')) {
    const rose = existsSync(BASELINE) ? risen(now, readBaseline()) : [];
    for (const one of rose) console.error(one);
    if (rose.length > 0) process.exitCode = 1;
    else writeFileSync(BASELINE, textOf(now));
    return;
  }
  const asked = found.filter(({ path }) => words.some((word) => path === word || path.startsWith(`${word}/`)));
  for (const { path, line, rule: id, phrase } of asked) console.log(`${path}:${line}: "${phrase}": ${RULES[id]?.use}`);
  if (words.length > 0) return;
  for (const id of Object.keys(RULES)) console.log(`${id} ${found.filter((one) => one.rule === id).length}`);
}

if (import.meta.main) main(process.argv.slice(2));
