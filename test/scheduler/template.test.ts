import { describe, expect, it } from 'vitest';
import { render } from '../../scheduler/controller/template.ts';

describe('a template', () => {
  const values = { model: 'a/b', tp: '2', pool: 'p', gpu: 'H100', gateway: 'https://g' };

  it('is filled with what it names', () => {
    expect(render('#!/bin/sh\n{{ model }} {{tp}}', values, {})).toBe('#!/bin/sh\na/b 2');
  });

  it.each(['$(rm -rf ~)', 'a; reboot', 'a`id`', 'a\nb', '-flag', '', "a'b", 'a b'])(
    'never takes %j into a script',
    (model) => {
      expect(() => render('#!/bin/sh\n{{model}}', { ...values, model }, {})).toThrow(/must not reach a shell/);
    },
  );

  it.each([
    ['#!/bin/sh\n{{modle}}', /names \{\{modle\}\}/],
    ['#!/bin/sh\n{{constructor}}', /names \{\{constructor\}\}/],
    ['echo {{model}}', /must begin with #!/],
  ])('that is wrong is refused: %j', (template, message) => {
    expect(() => render(template, values, {})).toThrow(message);
  });
});
