import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import type { Candidate } from '../../../../shared/routing/candidates.ts';
import {
  guardPolicy,
  POLICY_PAUSE_MS,
  type PolicyFault,
  readOperatorPolicies,
  readPolicyFile,
} from '../../../../shared/routing/policies/operator-policies.ts';
import type { Policy } from '../../../../shared/routing/routing-policy.ts';

const candidate = (session: string): Candidate => ({
  session,
  provider: 'p',
  cluster: 'c',
  tier: 'stable',
  inFlight: 0,
});
const nodes = [candidate('a'), candidate('b')];
const request = { model: 'm', priority: 'interactive', inputTokens: 1 } as const;
const nothing = () => {};
const last: Policy = { name: 'last', pick: (list) => list.at(-1), onRequestStart: nothing, onRequestEnd: nothing };

describe('a guarded policy', () => {
  let time: number;
  let cpu: number;
  let faults: PolicyFault[];
  const guard = (pick: Policy['pick']) =>
    guardPolicy(
      { name: 'own', pick, onRequestStart: nothing, onRequestEnd: nothing },
      { fallback: last, now: () => time, cpuMs: () => cpu, onFault: (kind) => faults.push(kind) },
    );
  const picks = (policy: Policy) => policy.pick(nodes, request, () => 0)?.session;
  beforeEach(() => {
    time = 0;
    cpu = 0;
    faults = [];
  });

  it('chooses; what it does not choose the default chooses, and that is no fault', () => {
    expect(picks(guard((list) => list[0]))).toBe('a');
    expect(picks(guard(() => undefined))).toBe('b');
    expect(faults).toEqual([]);
    expect(guard(() => nodes[0]).pick([], request, () => 0)).toBeUndefined();
  });

  it('that throws three times in a row is not asked for a minute', () => {
    let asked = 0;
    const policy = guard(() => {
      asked++;
      throw new Error('no');
    });
    for (let n = 0; n < 10; n++) expect(picks(policy)).toBe('b');
    expect(asked).toBe(3);
    expect(faults).toEqual(['threw', 'threw', 'threw']);
    time += POLICY_PAUSE_MS;
    picks(policy);
    expect(asked).toBe(4);
  });

  it('that is slow now and then goes on; three times in a row it rests', () => {
    let took = 50;
    const policy = guard((list) => {
      cpu += took;
      return list[0];
    });
    expect([picks(policy), picks(policy)]).toEqual(['a', 'a']);
    took = 1;
    expect(picks(policy)).toBe('a');
    took = 50;
    for (let n = 0; n < 3; n++) expect(picks(policy)).toBe('a');
    expect(picks(policy)).toBe('b');
    expect(faults).toEqual(Array(5).fill('slow'));
  });

  it('is not slow where the machine gives it a tenth of a processor', () => {
    const policy = guard(() => {
      time += 90;
      cpu += 9;
      return nodes[0];
    });
    for (let n = 0; n < 10; n++) expect(picks(policy)).toBe('a');
    expect(faults).toEqual([]);
  });

  it('that waits for a disk by the second rests', () => {
    let asked = 0;
    const policy = guard(() => {
      asked++;
      time += 1_500;
      return nodes[0];
    });
    for (let n = 0; n < 10; n++) picks(policy);
    expect([asked, faults]).toEqual([3, Array(3).fill('slow')]);
  });

  it('that names a stranger is overruled', () => {
    expect(picks(guard(() => candidate('stranger')))).toBe('b');
    expect(faults).toEqual(['no-candidate']);
  });

  it('that throws when requests begin or end harms none', () => {
    const policy = guardPolicy(
      {
        ...last,
        name: 'own',
        onRequestStart: () => {
          throw new Error('no');
        },
      },
      { fallback: last, now: () => time, cpuMs: () => cpu, onFault: (kind) => faults.push(kind) },
    );
    policy.onRequestStart(candidate('a'), request);
    expect(faults).toEqual(['threw']);
  });
});

describe('an operator’s file', () => {
  const directory = mkdtempSync(join(tmpdir(), 'otela-policy-'));
  afterAll(() => rmSync(directory, { recursive: true }));
  const load = createRequire(import.meta.url);
  const file = (name: string, text: string) => {
    const path = join(directory, name);
    writeFileSync(path, text);
    return path;
  };

  it('may export one policy or several, with types', () => {
    const one = file(
      'one.ts',
      "export const policy: { name: string; pick(): undefined } = { name: 'mine', pick: () => undefined };\n",
    );
    expect(readPolicyFile(one, load).map(({ name }) => name)).toEqual(['mine']);
    expect(readOperatorPolicies({ customPolicies: [last, { ...last, name: 'other' }] })).toHaveLength(2);
    expect(readOperatorPolicies({ default: last })).toHaveLength(1);
  });

  it.each([
    ['broken.ts', 'const a = 1;\nconst b = ;\n', /broken\.ts:2: /],
    ['throws.ts', "const a = 1;\n\nthrow new Error('not today');\n", /throws\.ts:3: not today/],
    ['none.ts', 'export const other = 1;\n', /none\.ts: it exports neither `policy`/],
    ['unnamed.ts', 'export const policy = { name: "My Policy", pick() {} };\n', /`name` must match/],
    ['nopick.ts', 'export const policy = { name: "mine", choose() {} };\n', /policy mine has no function `pick`/],
    ['twice.ts', 'const p = { name: "mine", pick() {} };\nexport const policies = [p, p];\n', /two policies/],
  ])('%s is refused, with its place', (name, text, message) => {
    expect(() => readPolicyFile(file(name, text), load)).toThrow(message);
  });
});

it('a policy may be an object of a class, whose methods are not its own', () => {
  class Latest implements Policy {
    readonly name = 'latest';
    readonly #at = -1;
    pick(list: readonly Candidate[]): Candidate | undefined {
      return list.at(this.#at);
    }
    onRequestStart(): void {}
    onRequestEnd(): void {}
  }
  const [policy] = readOperatorPolicies({ policy: new Latest() });
  expect(policy?.pick(nodes, request, () => 0)?.session).toBe('b');
});
