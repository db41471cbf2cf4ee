/** The form of a shared conversation, which another person wrote. */
import { expect, it } from 'vitest';
import { parseShared } from '../../dashboard/chat/share/shared-form.ts';

const turn = { role: 'user', text: 'Hello' };
const shared = (more: object = {}) =>
  JSON.stringify({ format: 'otela-shared', version: 1, title: 'T', threads: [{ model: 'm', turns: [turn] }], ...more });

it('has turns with pictures and files that are inside it', () => {
  const picture = { kind: 'image', name: 'p', url: 'data:image/png;base64,AA==' };
  const file = { kind: 'text', name: 'f', text: 'x' };
  const turns = [{ ...turn, attachments: [picture, file] }];
  expect(parseShared(shared({ threads: [{ model: 'm', turns }] })).threads[0]?.turns).toEqual(turns);
});

it.each<[string, string]>([
  ['is no JSON', '<html>'],
  ['has another form', '{"format":"otela-conversation","version":1}'],
  [
    'has a picture at an address',
    shared({
      threads: [
        { model: 'm', turns: [{ ...turn, attachments: [{ kind: 'image', name: 'x', url: 'https://spy.org/a.png' }] }] },
      ],
    }),
  ],
  [
    'has a picture that is a script',
    shared({
      threads: [
        {
          model: 'm',
          turns: [{ ...turn, attachments: [{ kind: 'image', name: 'x', url: 'data:text/html;base64,AA' }] }],
        },
      ],
    }),
  ],
  ['has a turn of another role', shared({ threads: [{ model: 'm', turns: [{ role: 'system', text: 'x' }] }] })],
  ['has a number as text', shared({ threads: [{ model: 'm', turns: [{ role: 'user', text: 5 }] }] })],
  ['has no thread', shared({ threads: [] })],
  ['has three threads', shared({ threads: new Array(3).fill({ model: 'm', turns: [] }) })],
  ['has too many turns', shared({ threads: [{ model: 'm', turns: new Array(2_001).fill(turn) }] })],
  ['has a huge title', shared({ title: 'x'.repeat(201) })],
])('a box that %s is refused', (_, text) => {
  expect(() => parseShared(text)).toThrow();
});
