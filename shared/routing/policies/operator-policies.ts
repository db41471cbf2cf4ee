/**
 * Policies from an operator's file: what the file must export, and how requests are still served if a policy throws or
 * is slow.
 */
import { errorText } from '../../text/error-text.ts';
import type { Candidate } from '../candidates.ts';
import type { Policy, RoutedRequest } from '../routing-policy.ts';

/** Allowed names of policies. Other characters would need quoting in shells and URLs. */
const NAME = /^[a-z0-9][a-z0-9-]{0,62}$/;
const OPERATOR_POLICIES_MAX = 16;

/**
 * Maximum processor time of one choice. A normal choice takes microseconds. A slow one delays every stream of the
 * process.
 */
const SLOW_MS = 10;
/**
 * Maximum elapsed time of one choice, for a policy that waits, for example for a disk. It is longer than the pauses of
 * a process that may use only a fraction of a processor.
 */
const CHOICE_MAX_MS = 1_000;
/** After this many consecutive slow choices or failures the policy is not asked for `POLICY_PAUSE_MS`. */
const STRIKES = 3;
export const POLICY_PAUSE_MS = 60_000;

/** Describes what is wrong with the file, as a clause. */
export class PolicyFileError extends Error {}

/**
 * Reads the exports of a module: `policy`, `policies` or `customPolicies`, or one of them as `default`.
 * @throws PolicyFileError
 */
export function readOperatorPolicies(exported: unknown): Policy[] {
  const found = members(exported);
  const given = found.policies ?? found.customPolicies ?? found.policy ?? found.default;
  if (given === undefined) throw new PolicyFileError('it exports neither `policy` nor `policies` nor a default');
  const list: unknown[] = Array.isArray(given) ? given : [given];
  if (list.length === 0 || list.length > OPERATOR_POLICIES_MAX)
    throw new PolicyFileError(`it exports ${list.length} policies; 1 to ${OPERATOR_POLICIES_MAX} are allowed`);
  const policies = list.map(policyOf);
  const names = policies.map(({ name }) => name);
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice !== undefined) throw new PolicyFileError(`it exports two policies with the name ${twice}`);
  return policies;
}

function policyOf(value: unknown): Policy {
  const { name, pick, onRequestStart, onRequestEnd } = members(value);
  if (typeof name !== 'string' || !NAME.test(name))
    throw new PolicyFileError(`a policy's \`name\` must match ${NAME.source}, but is ${JSON.stringify(name)}`);
  if (typeof pick !== 'function') throw new PolicyFileError(`policy ${name} has no function \`pick\``);
  for (const [called, it] of Object.entries({ onRequestStart, onRequestEnd }))
    if (it !== undefined && typeof it !== 'function')
      throw new PolicyFileError(`\`${called}\` of policy ${name} is not a function`);
  const given = value as Policy;
  return {
    name,
    // `guardPolicy` checks the result.
    pick: (...args) => given.pick(...args),
    onRequestStart: (...args) => (onRequestStart === undefined ? undefined : given.onRequestStart(...args)),
    onRequestEnd: (...args) => (onRequestEnd === undefined ? undefined : given.onRequestEnd(...args)),
  };
}

/** Includes members that an object inherits from its class. */
function members(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

export type PolicyFault = 'threw' | 'slow' | 'no-candidate';

interface GuardOptions {
  /** The policy that chooses if the operator's policy does not. */
  fallback: Policy;
  /** Milliseconds of a monotonic clock. */
  now(): number;
  /**
   * Milliseconds of processor time that this thread used. On an overloaded machine, elapsed time does not show that a
   * policy is slow.
   */
  cpuMs(): number;
  onFault(kind: PolicyFault, why: string): void;
}

/**
 * Wraps a policy that may be faulty. If it returns `undefined`, the fallback policy chooses. If it throws, names an
 * unknown candidate, or is slow (`SLOW_MS`, `CHOICE_MAX_MS`) three times in a row, it is not called for a minute. It
 * runs in the process's own thread, so a policy that never returns blocks everything.
 */
export function guardPolicy(policy: Policy, { fallback, now, cpuMs, onFault }: GuardOptions): Policy {
  let strikes = 0;
  let restsUntil = Number.NEGATIVE_INFINITY;
  const fault = (kind: PolicyFault, why: string) => {
    strikes++;
    onFault(kind, why);
    if (strikes < STRIKES) return;
    strikes = 0;
    restsUntil = now() + POLICY_PAUSE_MS;
  };
  const calmly = (run: () => void) => {
    try {
      run();
    } catch (error) {
      fault('threw', errorDetail(error));
    }
  };
  const chosen = (candidates: readonly Candidate[], request: RoutedRequest, random: () => number) => {
    const before = now();
    if (before < restsUntil) return undefined;
    const cpuBefore = cpuMs();
    try {
      const one: Candidate | undefined = policy.pick(candidates, request, random);
      const usedMs = cpuMs() - cpuBefore;
      const tookMs = now() - before;
      if (one !== undefined && !candidates.includes(one)) {
        fault('no-candidate', 'it chose a node that is not a candidate');
        return undefined;
      }
      if (usedMs > SLOW_MS) fault('slow', `a choice took ${usedMs.toFixed(1)} ms of a processor, more than ${SLOW_MS}`);
      else if (tookMs > CHOICE_MAX_MS)
        fault('slow', `a choice took ${Math.round(tookMs)} ms, more than ${CHOICE_MAX_MS}`);
      else strikes = 0;
      return one;
    } catch (error) {
      fault('threw', errorDetail(error));
      return undefined;
    }
  };
  return {
    name: policy.name,
    pick: (candidates, request, random) =>
      candidates.length === 0
        ? undefined
        : (chosen(candidates, request, random) ?? fallback.pick(candidates, request, random)),
    onRequestStart: (...args) => {
      fallback.onRequestStart(...args);
      calmly(() => policy.onRequestStart(...args));
    },
    onRequestEnd: (...args) => {
      fallback.onRequestEnd(...args);
      calmly(() => policy.onRequestEnd(...args));
    },
  };
}

/** The error's message, and where it was thrown. */
function errorDetail(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return (error.stack ?? error.message)
    .split('\n')
    .slice(0, 2)
    .map((line) => line.trim())
    .join(' ');
}

/**
 * Loads the file and reads its exports.
 * @param load a `require` that accepts TypeScript
 * @throws PolicyFileError with file and line
 */
export function readPolicyFile(file: string, load: (file: string) => unknown): Policy[] {
  let exported: unknown;
  try {
    exported = load(file);
  } catch (cause) {
    const text = cause instanceof Error ? (cause.stack ?? cause.message) : String(cause);
    const message = errorText(cause).split('\n')[0];
    throw new PolicyFileError(`${placeIn(text, file)}: ${message}`, { cause });
  }
  try {
    return readOperatorPolicies(exported);
  } catch (error) {
    if (error instanceof PolicyFileError) throw new PolicyFileError(`${file}: ${error.message}`, { cause: error });
    throw error;
  }
}

/** `FILE:LINE` if the error's text contains it, as Node's errors do. */
function placeIn(text: string, file: string): string {
  const at = text.indexOf(`${file}:`);
  const line = at < 0 ? undefined : /^\d+/.exec(text.slice(at + file.length + 1))?.[0];
  return line === undefined ? file : `${file}:${line}`;
}
