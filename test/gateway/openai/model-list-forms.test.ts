import { expect, it } from 'vitest';
import { anthropicModel, anthropicPage, codexList } from '../../../gateway/openai/model-list-forms.ts';

const MODELS = ['a', 'b', 'c', 'd', 'e'].map((id) => ({ id, created: 1_700_000_000 }));
const page = (query: { limit?: string; afterId?: string; beforeId?: string }) => {
  const { limit, afterId, beforeId } = query;
  const { data, ...rest } = anthropicPage(MODELS, { limit, afterId, beforeId });
  return { ids: data.map(({ id }) => id).join(''), ...rest };
};

it('a model has its name, its time and its context', () => {
  expect(anthropicModel({ id: 'org/m', created: 1_700_000_000 })).toEqual({
    type: 'model',
    id: 'org/m',
    display_name: 'org/m',
    created_at: '2023-11-14T22:13:20.000Z',
  });
  const known = { id: 'org/m', created: 0, display_name: 'M', context_length: 32_768 };
  expect(anthropicModel(known)).toMatchObject({ display_name: 'M', max_input_tokens: 32_768 });
});

it('pages follow each other in both directions, without gaps', () => {
  expect(page({})).toEqual({ ids: 'abcde', first_id: 'a', last_id: 'e', has_more: false });
  expect(page({ limit: '2' })).toEqual({ ids: 'ab', first_id: 'a', last_id: 'b', has_more: true });
  expect(page({ limit: '2', afterId: 'b' })).toMatchObject({ ids: 'cd', has_more: true });
  expect(page({ limit: '2', afterId: 'd' })).toMatchObject({ ids: 'e', has_more: false });
  expect(page({ limit: '2', afterId: 'e' })).toEqual({ ids: '', first_id: null, last_id: null, has_more: false });
  expect(page({ limit: '2', beforeId: 'd' })).toMatchObject({ ids: 'bc', has_more: true });
  expect(page({ limit: '2', beforeId: 'b' })).toMatchObject({ ids: 'a', has_more: false });
  expect(page({ limit: '9', afterId: 'a', beforeId: 'd' })).toMatchObject({ ids: 'bc', has_more: false });
  expect(page({ afterId: 'd', beforeId: 'b' })).toMatchObject({ ids: '', has_more: false });
});

it.each([{ limit: '0' }, { limit: '1001' }, { limit: '-1' }, { limit: '1.5' }, { limit: 'all' }, { limit: '1e99' }])(
  'refuses %j',
  (query) => {
    expect(() => page(query)).toThrow(expect.objectContaining({ status: 400 }));
  },
);

it('refuses an id that is not in the list, such as that of a model that this key may not see', () => {
  expect(() => page({ afterId: 'secret' })).toThrow(expect.objectContaining({ status: 400 }));
  expect(() => page({ beforeId: '__proto__' })).toThrow(expect.objectContaining({ status: 400 }));
});

it('Codex gets the list that its decoder needs, without entries that would replace its own prompt', () => {
  expect(codexList({ object: 'list', data: MODELS })).toEqual({ object: 'list', data: MODELS, models: [] });
});
