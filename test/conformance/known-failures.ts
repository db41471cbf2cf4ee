/**
 * What a host cannot do yet. Each of these tests must fail there: one that passes is a failure of the run, so that a mend is noticed and its
 * line goes. Whatever is not listed must pass on every host.
 */
import type { HostName } from '../support/host.ts';

export interface KnownFailure {
  hosts: readonly HostName[];
  /** Below test/conformance. */
  file: string;
  /** All of the test's name, its `describe` before it. */
  tests: readonly string[];
  reason: string;
}

const refused = (...cases: string[]): string[] =>
  cases.map((one) => `is refused, and what follows on the connection is not read > ${one}`);

export const KNOWN_FAILURES: readonly KnownFailure[] = [
  {
    hosts: ['workerd'],
    file: 'framing.test.ts',
    tests: refused(
      'Content-Length and Transfer-Encoding together',
      'Transfer-Encoding and Content-Length together',
      'two Content-Length headers that are equal',
      'chunked twice',
      'lines that end with LF alone',
      'one header line that ends with LF alone',
      'no Host',
      'two Host headers',
    ),
    reason: 'workerd’s parser takes it. The public socket knows bytes only, and ends with the runtime behind it',
  },
  {
    hosts: ['workerd'],
    file: 'connections.test.ts',
    tests: ['a head of 1 MiB is told 431, and the client can read that'],
    reason: 'workerd answers while the client still sends, and closes with a reset that overtakes its answer',
  },
  {
    hosts: ['workerd'],
    file: 'connections.test.ts',
    tests: [
      'CONNECT example.com:443 without a key is a client’s error',
      'CONNECT 127.0.0.1:80 without a key is a client’s error',
    ],
    reason: 'workerd has no CONNECT handler in the Worker and answers 500',
  },
  {
    hosts: ['workerd'],
    file: 'answers.test.ts',
    tests: ['the log has one line for each failed request, and no stack'],
    reason: 'workerd writes a line of its own, with C++ names, for each exception that it sees',
  },
  {
    hosts: ['workerd'],
    file: 'connections.test.ts',
    tests: [
      'one client without a key takes all the connections it can: another address, a valid key and a new agent are served',
      'behind one address that is used up, silent connections make room for those that ask with a valid key',
    ],
    reason: 'the public socket counts connections and knows neither addresses nor keys',
  },
];

/** The entry for a test of this host, if there is one. */
export function knownFailure(host: HostName, file: string, test: string): KnownFailure | undefined {
  return KNOWN_FAILURES.find((one) => one.hosts.includes(host) && one.file === file && one.tests.includes(test));
}
