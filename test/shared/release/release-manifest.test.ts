import { expect, it } from 'vitest';
import { isOlder, isVersion } from '../../../shared/release/release-manifest.ts';

it('versions are ordered by their numbers, and a pre-release comes before its release', () => {
  const ordered = ['0.0.1', '0.1.0-rc.1', '0.1.0', '0.1.9', '0.1.10', '0.2.0', '1.0.0', '10.0.0'];
  for (const [a, version] of ordered.entries()) {
    for (const [b, than] of ordered.entries()) expect(isOlder(version, than), `${version} ${than}`).toBe(a < b);
  }
});

it('a version that cannot be read is older than any', () => {
  for (const version of ['', 'v1.0.0', '1.0', '1.0.0.0', '1000000000.0.0', '1.0.0+build', ' 1.0.0']) {
    expect(isVersion(version)).toBe(false);
    expect(isOlder(version, '0.0.0')).toBe(true);
  }
});
