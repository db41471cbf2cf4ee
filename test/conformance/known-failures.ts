/**
 * What a host cannot do. Each of these tests must fail there: if one passes, the run fails, so that a fix is noticed
 * and its line is removed. All other tests must pass on every host.
 */
import type { HostName } from '../support/host.ts';

export interface KnownFailure {
  hosts: readonly HostName[];
  /** Path below test/conformance. */
  file: string;
  /** Full names of the tests, each with its `describe` first. */
  tests: readonly string[];
  reason: string;
}

export const KNOWN_FAILURES: readonly KnownFailure[] = [
  {
    hosts: ['worker'],
    file: 'cold-models.test.ts',
    tests: ['a client that leaves is wanted for no more'],
    reason:
      'wrangler dev’s proxy goes on with a request whose client leaves before the head of its answer; workerd behind it tells the Worker of a reset at once',
  },
  {
    hosts: ['worker'],
    file: 'http/headers.test.ts',
    tests: ['a header of the engine comes with the bytes that it had, UTF-8 and Latin-1'],
    reason: 'wrangler dev’s proxy encodes bytes above 127 of a header as UTF-8 once more',
  },
];

/** The entry for a test of this host, if there is one. */
export function knownFailure(host: HostName, file: string, test: string): KnownFailure | undefined {
  return KNOWN_FAILURES.find((one) => one.hosts.includes(host) && one.file === file && one.tests.includes(test));
}
