/**
 * Checks the messages of the commits that this branch has and `main` does not: `scope: imperative`, at most 72
 * characters, and a body with the reason. If the history is missing, it prints that nothing was checked.
 */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** Maximum number of characters of a subject. Git's documentation advises 50; this adds space for a scope. */
const SUBJECT_MAX = 72;
/** The first of these branches that exists is the target of changes. */
const BASES = ['origin/main', 'main'];
/** Imperatives that end in `s`, `ed` or `ing`, like words that are not imperatives. */
const VERBS =
  /^(?:embed|feed|need|proceed|seed|shed|speed|spread|wed|bring|string|ring|access|address|bypass|compress|cross|discuss|dismiss|express|focus|guess|pass|press|process|stress|suppress)$/;
/** Matches first words of descriptions, which are not imperatives. */
const NO_VERB =
  /^(?:a|all|an|both|each|every|if|it|its|no|one|only|some|that|the|these|this|two|what|when|where|with)$/;

/** Describes what is wrong with a message; undefined: nothing. */
export function messageFault(message: string): string | undefined {
  const [subject = '', ...body] = message.trimEnd().split('\n');
  if (/^Merge /.test(subject)) return undefined;
  if (subject.length > SUBJECT_MAX)
    return `the subject has ${subject.length} characters, at most ${SUBJECT_MAX} are allowed`;
  const [, verb] = /^[a-z][\w./, -]*: (\S+)/.exec(subject) ?? [];
  if (verb === undefined) return 'the subject has no scope, as in "gateway: settle a hold once"';
  const isOther = !VERBS.test(verb) && (/(?:ed|ing|[^s]s)$/.test(verb) || NO_VERB.test(verb));
  if (isOther || !/^[a-z]/.test(verb)) return `"${verb}" is not an imperative, as in "gateway: settle a hold once"`;
  if (body.join('').trim() === '') return 'the body is missing: say why';
  return body[0] === '' ? undefined : 'an empty line is missing below the subject';
}

interface Checked {
  /** What was checked, or why nothing was checked. */
  about: string;
  /** One line per bad message. */
  faults: string[];
}

export function checkBranch(root = ROOT): Checked {
  const git = (...args: string[]): string | undefined => {
    const { status, stdout } = spawnSync('git', args, { cwd: root, encoding: 'utf8', maxBuffer: 1 << 26 });
    return status === 0 ? stdout.trim() : undefined;
  };
  const nothing = (why: string): Checked => ({ about: `no commit was checked: ${why}`, faults: [] });
  const shallow = git('rev-parse', '--is-shallow-repository');
  if (shallow === undefined) return nothing('this is not a clone');
  if (shallow === 'true') return nothing('this clone has no history');
  const base = BASES.find((name) => git('rev-parse', '--verify', '--quiet', name) !== undefined);
  if (base === undefined) return nothing(`there is no ${BASES.join(' or ')}`);
  const log = git('log', '--no-merges', '--format=%h%n%B%x00', `${base}..HEAD`) ?? '';
  const messages = log.split('\0').filter((one) => one.trim() !== '');
  const faults = messages.flatMap((one) => {
    const [id = '', ...rest] = one.trimStart().split('\n');
    const fault = messageFault(rest.join('\n'));
    return fault === undefined ? [] : [`${id} ${rest[0]}: ${fault}`];
  });
  return { about: `${messages.length} commits since ${base}`, faults };
}

if (import.meta.main) {
  const { about, faults } = checkBranch();
  console.log(`commits: ${about}`);
  for (const fault of faults) console.error(fault);
  if (faults.length > 0) process.exitCode = 1;
}
