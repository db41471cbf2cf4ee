import { describe, expect, it } from 'vitest';
import { TokenBucket } from '../../../shared/collections/token-bucket.ts';

describe('a bucket', () => {
  it('gives its burst, then its rate', () => {
    const bucket = new TokenBucket(10, 20, 0);
    expect(Array.from({ length: 25 }, () => bucket.take(1, 0)).filter(Boolean)).toHaveLength(20);
    expect(bucket.take(5, 400)).toBe(false);
    expect(bucket.take(5, 500)).toBe(true);
    expect(bucket.take(21, 1_000_000)).toBe(false);
  });

  it('loses nothing by a clock that is set back', () => {
    const bucket = new TokenBucket(10, 20, 10_000);
    expect(bucket.take(15, 10_000)).toBe(true);
    expect(bucket.take(5, 0)).toBe(true);
    expect(bucket.take(1, 0)).toBe(false);
  });
});
