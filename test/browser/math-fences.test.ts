import { expect, it } from 'vitest';
import { withMathFences } from '../../dashboard/chat/markdown/math-fences.ts';

it('a displayed formula stands between fences, whatever brackets it had', () => {
  for (const text of ['So $$E = h$$ holds', 'So \\[E = h\\] holds'])
    expect(withMathFences(text, false)).toBe('So \n$$\nE = h\n$$\n holds');
});

it.each(['$$', '\\['])(
  'of a formula that %s opened and that still comes the source is code, never loose dollars',
  (open) => {
    const whole = `It is\n\n${open}E = \\frac{h}{2}\n\n+ 1`;
    for (let end = whole.indexOf(open) + open.length; end <= whole.length; end++) {
      const shown = withMathFences(whole.slice(0, end), true);
      expect(shown).not.toMatch(/[$[]/);
      expect(shown.split('`').length % 2).toBe(1);
    }
    expect(withMathFences(whole, true)).toBe('It is\n\n`E = \\frac{h}{2} + 1`');
  },
);

it('money stays money, and code stays code, while more comes', () => {
  expect(withMathFences('It costs $5 or $10', true)).toBe('It costs \\$5 or \\$10');
  expect(withMathFences('`$$x` and\n```\n$$ y\n', true)).toBe('`$$x` and\n```\n$$ y\n');
});
