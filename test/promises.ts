/**
 * The promises of the pages, each with the test that would detect a violation. `npm run test:promises` breaks the line
 * of each promise in a copy of the clone and runs only its test, which must then fail: a test that still passes proves
 * nothing.
 */

export interface Promised {
  promise: string;
  /** From test/, without `.test.ts`. */
  file: string;
  /** The test's name, after its `describe`. */
  test: string;
  /** `line` occurs once in `file`; `broken` replaces it. */
  breaks: { file: string; line: string; broken: string };
}

export const PROMISES: readonly Promised[] = [
  {
    promise: 'a node sees a request only where every list names its provider',
    file: 'shared/routing/trusted-providers',
    test: 'a node may see a request exactly when every list names its provider and every policy its place',
    breaks: {
      file: 'shared/routing/trusted-providers.ts',
      line: 'others.every((other)',
      broken: 'others.some((other)',
    },
  },
  {
    promise: 'a deleted provider is trusted by nobody',
    file: 'shared/routing/trusted-providers',
    test: 'a node may see a request exactly when every list names its provider and every policy its place',
    breaks: {
      file: 'shared/routing/trusted-providers.ts',
      line: 'if (!listed || trust.deleted.has(id)) return false;',
      broken: 'if (!listed) return false;',
    },
  },
  {
    promise: 'any other word for DEFAULT_TRUST means marked',
    file: 'gateway/admin/usage',
    test: 'an unknown value of the default trust means marked providers, not all',
    breaks: {
      file: 'gateway/accounts/gateway-settings.ts',
      line: "? 'admitted' : 'marked';",
      broken: "? 'admitted' : word === 'marked' ? 'marked' : 'admitted';",
    },
  },
  {
    promise: 'neither the key nor the address of a client goes to a node',
    file: 'conformance/http/headers',
    test: 'no secret and no private header of the client reaches the engine, in any spelling',
    breaks: {
      file: 'shared/openai/forwarded-headers.ts',
      line: "const TO_ENGINE = ['content-type',",
      broken: "const TO_ENGINE = ['cookie', 'x-forwarded-for', 'content-type',",
    },
  },
  {
    promise: 'a precision that a flag may change is not published',
    file: 'agent/engine/facts/checkpoint-facts',
    test: 'is unknown where the command line may change it: --quantization fp8',
    breaks: {
      file: 'agent/engine/facts/checkpoint-facts.ts',
      line: '(source.unchanged ?? quantized)',
      broken: '(source.unchanged ?? true) !== undefined',
    },
  },
  {
    promise: 'three retries at most, each at another node',
    file: 'shared/attempts/dispatch',
    test: 'another node is asked > at most three times, however many nodes are there, and each node once',
    breaks: {
      file: 'shared/attempts/dispatch.ts',
      line: 'const { retriesMax, first = 1 } = host;',
      broken: 'const { first = 1 } = host; const retriesMax = host.retriesMax + 1;',
    },
  },
  {
    promise: 'each line of a batch is answered once',
    file: 'shared/batch/lease-ledger',
    test: 'results > gives every line one result, for any nodes, evictions and restarts',
    breaks: {
      file: 'shared/batch/lease-ledger.ts',
      line: ' || hasBit(chunk.done, line)) continue;',
      broken: ') continue;',
    },
  },
  {
    promise: 'a node commits lines of its own lease alone',
    file: 'shared/batch/lease-ledger',
    test: 'results > takes nothing of a node that never held the lease, nor lines outside of the chunk',
    breaks: {
      file: 'shared/batch/lease-ledger.ts',
      line: 'if (!chunk?.holders.some((one) => one.epoch === epoch && one.node === node)) return [];\n    const taken',
      broken: 'if (!chunk?.holders.some((one) => one.epoch === epoch)) return [];\n    const taken',
    },
  },
  {
    promise: 'a batch in danger of its deadline goes first',
    file: 'shared/batch/batch',
    test: 'which batch gets the next lease > is one in danger of its deadline, before all others',
    breaks: { file: 'shared/batch/next-batch.ts', line: 'inDanger(batch, nowMs) ?', broken: 'nowMs < 0 ?' },
  },
  {
    promise: "batches leave a tenth of an engine's slots free",
    file: 'shared/batch/batch',
    test: 'the window of lines in flight > never takes the reserve, and gives way to interactive requests at once',
    breaks: {
      file: 'shared/batch/line-concurrency.ts',
      line: 'return Math.max(1, slots - Math.max(1, Math.floor(slots * this.#limits.reserve)));',
      broken: 'return slots;',
    },
  },
  {
    promise: 'a batch has 50,000 lines at most',
    file: 'shared/batch/batch-input-check',
    test: 'the check of an input file > refuses more lines than a batch may have',
    breaks: {
      file: 'shared/batch/batch-input-check.ts',
      line: 'if (this.#lines === LINES_MAX) {',
      broken: 'if (this.#lines === 2 * LINES_MAX) {',
    },
  },
  {
    promise: 'a node that fails five times in a row is left alone',
    file: 'shared/routing/circuit-breakers',
    test: 'a node leaves the candidates > after five failures in a row, and of no other',
    breaks: {
      file: 'shared/routing/circuit-breakers.ts',
      line: 'const CONSECUTIVE = 5;',
      broken: 'const CONSECUTIVE = 6;',
    },
  },
  {
    promise: 'an engine that is silent for 20 s while its peers answer is taken to hang',
    file: 'shared/routing/hang-detector',
    test: 'an engine is taken to hang > 20 s after its last byte while a peer answers',
    breaks: {
      file: 'shared/routing/hang/hang-detector.ts',
      line: 'const SILENCE_MS = 20_000;',
      broken: 'const SILENCE_MS = 24_000;',
    },
  },
  {
    promise: 'a stream with tools never goes on at another node',
    file: 'shared/openai/continuation/continuation-plan',
    test: 'it is never tried',
    breaks: {
      file: 'shared/openai/continuation/continuation-plan.ts',
      line: "['tools', empty],",
      broken: "['tools', anything],",
    },
  },
  {
    promise: 'bodies that wait take no more memory than their bound',
    file: 'shared/proxy/body-memory',
    test: 'at most the bound is held for any input, and all of it is returned',
    breaks: {
      file: 'shared/proxy/body-memory.ts',
      line: 'if (last === undefined) return false;',
      broken: 'if (last === undefined) break;',
    },
  },
  {
    promise: 'where releases are asked for, a program that is not of one is not let in',
    file: 'gateway/registry/attest-release',
    test: 'each form of the agent is the agent of its release, and no other file of it is',
    breaks: {
      file: 'shared/release/release-manifest.ts',
      line: 'AGENT_FILES.includes(path) && sha256 === digest',
      broken: 'sha256 === digest',
    },
  },
  {
    promise: 'a provider charges no more than a request can have used',
    file: 'gateway/usage/charges',
    test: 'a count above what the request can have used is cut, and told',
    breaks: {
      file: 'shared/attempts/token-bound.ts',
      line: 'const completion = Math.min(usage.completion, bound.completion, seen);',
      broken: 'const completion = usage.completion;',
    },
  },
  {
    promise: 'a limit of requests a minute is exact',
    file: 'gateway/accounts/limiter',
    test: 'grants exactly what a list of all events grants, for any events in any order',
    breaks: {
      file: 'gateway/accounts/limits/limit-meter.ts',
      line: 'this.#requests.waitFor(1, requests_per_minute, now.ms)',
      broken: 'this.#requests.waitFor(0, requests_per_minute, now.ms)',
    },
  },
  {
    promise: 'a person who is erased is in no table any more',
    file: 'gateway/admin/erase-user',
    test: 'a person is gone from accounts, audit and records, sums stay, and others keep theirs',
    breaks: {
      file: 'gateway/admin/erase-user.ts',
      line: '.set({ ...nobody, role',
      broken: '.set({ role',
    },
  },
  {
    promise: 'the audit log keeps no word of a person who is erased',
    file: 'gateway/admin/erase-user',
    test: 'a person is gone from accounts, audit and records, sums stay, and others keep theirs',
    breaks: {
      file: 'gateway/admin/erase-user.ts',
      line: '.set({ before: null, after: null })',
      broken: '.set({ before: null })',
    },
  },
  {
    promise: 'a sealed request is opened once',
    file: 'agent/seal/round-trip',
    test: 'is answered once, unless no answer came of it',
    breaks: {
      file: 'shared/collections/replay-memory.ts',
      line: 'this.#until.set(nonce, until);',
      broken: '',
    },
  },
  {
    promise: "an engine's redirect leads no client elsewhere",
    file: 'shared/openai/forwarded-headers',
    test: 'an engine’s redirect does not lead a client with its x-api-key to where a provider likes',
    breaks: {
      file: 'shared/openai/forwarded-headers.ts',
      line: "  'content-disposition',\n",
      broken: "  'content-disposition',\n  'location',\n",
    },
  },
];
