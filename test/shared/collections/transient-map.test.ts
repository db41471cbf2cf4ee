import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { TransientMap } from '../../../shared/collections/transient-map.ts';

describe('a map of what comes and goes', () => {
  it('has what was set and not deleted, oldest first', () => {
    const map = new TransientMap<string, number>();
    for (const [at, key] of ['a', 'b', 'c', 'd'].entries()) map.set(key, at);
    map.set('b', 7);
    expect(map.delete('a')).toBe(true);
    expect(map.delete('a')).toBe(false);
    map.set('a', 8);
    expect([...map.keys()]).toEqual(['b', 'c', 'd', 'a']);
    expect([...map.values()]).toEqual([7, 2, 3, 8]);
    expect([map.get('b'), map.get('z'), map.has('c'), map.has('z'), map.size]).toEqual([7, undefined, true, false, 4]);
    map.clear();
    expect([map.size, map.get('b'), [...map.values()]]).toEqual([0, undefined, []]);
  });

  it('may be changed while it is iterated', () => {
    const map = new TransientMap<number, string>();
    for (let n = 0; n < 6; n++) map.set(n, `of ${n}`);
    const seen: string[] = [];
    for (const value of map.values()) {
      seen.push(value);
      map.delete(map.size === 6 ? 0 : 3);
      if (seen.length === 2) map.set(9, 'late');
    }
    expect(seen).toEqual(['of 0', 'of 1', 'of 2', 'of 4', 'of 5', 'late']);
  });

  it('keeps nothing of what has gone, where a Map carries nearly all of it into the old generation', () => {
    const churn = fileURLToPath(new URL('./churn.ts', import.meta.url));
    const grown = (kind: string) =>
      Number(
        execFileSync(process.execPath, ['--expose-gc', '--initial-old-space-size=1024', churn, kind], {
          encoding: 'utf8',
        }),
      );
    const [map, transient] = [grown('Map'), grown('TransientMap')];
    expect(map).toBeGreaterThan(20); // MiB of 80; otherwise V8 has fixed it and this test shows nothing
    expect(transient).toBeLessThan(map / 5);
  });
});
