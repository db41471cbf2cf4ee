import { describe, expect, it } from 'vitest';
import {
  ENDPOINTS,
  endpointById,
  findEndpoint,
  pathNotFound,
  REALTIME,
  STORED_RESPONSE_ENDPOINTS,
} from '../../../shared/openai/endpoints.ts';

describe('the table of endpoints', () => {
  it('never renumbers: these ids are on the wire', () => {
    expect(Object.fromEntries(ENDPOINTS.map(({ id, path }) => [id, path]))).toEqual({
      1: '/v1/chat/completions',
      2: '/v1/completions',
      3: '/v1/responses',
      4: '/v1/embeddings',
      5: '/v1/messages',
      6: '/v1/rerank',
      7: '/v1/score',
      8: '/v1/classify',
      9: '/v1/tokenize',
      10: '/v1/detokenize',
      11: '/v1/audio/speech',
      12: '/v1/audio/transcriptions',
      13: '/v1/audio/translations',
      14: '/v1/messages/count_tokens',
      15: '/v1/otela/evidence',
      20: '/v1/images/generations',
      21: '/v1/images/edits',
      22: '/v1/images/variations',
      23: '/v1/moderations',
      24: '/v1/pooling',
      26: '/v1/videos/sync',
    });
  });

  it('gives no id twice', () => {
    for (const endpoint of [...ENDPOINTS, ...STORED_RESPONSE_ENDPOINTS, REALTIME])
      expect(endpointById(endpoint.id)).toBe(endpoint);
  });

  it.each([
    ['/v1//chat/completions', '/v1/chat/completions'],
    ['//v1/models/', '/v1/models'],
    ['/v1/v1/embeddings', '/v1/embeddings'],
    ['/audio/speech', '/v1/audio/speech'],
    ['/models/org/m', '/v1/models/org/m'],
  ])('names the path that a client means by %s', (path, meant) => {
    expect(pathNotFound(path).message).toContain(`there is ${meant}: correct the client's base address`);
  });

  it.each(['/', '/v1/', '/v1', '/v2/models', '/v1/nothing', '/v1/files/', '/'.repeat(9_000)])(
    'has no guess for %s',
    (path) => expect(pathNotFound(path).message).toMatch(/^There is no \S{1,129} here\.$/),
  );

  it('finds each endpoint by method and path, and by id', () => {
    for (const endpoint of ENDPOINTS) {
      expect(findEndpoint('POST', endpoint.path)).toBe(endpoint);
      expect(endpointById(endpoint.id)).toBe(endpoint);
    }
  });

  it('finds the endpoints of a stored response, which are not among those that clients list', () => {
    const ids = (['GET', 'DELETE', 'POST'] as const).map((method) => findEndpoint(method, '/v1/responses/resp_1'));
    expect(ids).toMatchObject([{ id: 16 }, { id: 18 }, { methodNotAllowed: ['GET', 'DELETE'] }]);
    expect(findEndpoint('POST', '/v1/responses/resp_1/cancel')).toMatchObject({ id: 17 });
    expect(endpointById(19)).toMatchObject({ path: '/v1/responses/{id}', usage: 'responses' });
    expect(ENDPOINTS.every(({ body }) => body !== 'none')).toBe(true);
  });

  it('finds a realtime session by GET only', () => {
    expect(findEndpoint('GET', '/v1/realtime')).toBe(REALTIME);
    expect(findEndpoint('POST', '/v1/realtime')).toEqual({ methodNotAllowed: ['GET'] });
  });

  it('tells the allowed methods where the path is right and the method wrong', () => {
    expect(findEndpoint('GET', '/v1/chat/completions')).toEqual({ methodNotAllowed: ['POST'] });
    for (const path of ['/v1/models', '/v1/models/a/b', '/v1/models/a\nb'])
      expect(findEndpoint('DELETE', path)).toEqual({ methodNotAllowed: ['GET', 'HEAD'] });
  });

  it.each(['/v1/images', '/v1/chat/completions/', '/V1/embeddings', '/rerank', '/v1/audio/other', '/v1/__proto__', ''])(
    'does not know %s',
    (path) => {
      expect(findEndpoint('POST', path)).toBeUndefined();
    },
  );

  it('does not know an id of the future', () => {
    expect(endpointById(0)).toBeUndefined();
    expect(endpointById(9999)).toBeUndefined();
  });

  it('calls rerank, score, classify, pooling and the tokenizer at the root of the engine, everything else under /v1', () => {
    const atRoot = ENDPOINTS.filter(({ enginePath }) => !enginePath.startsWith('/v1/'));
    expect(atRoot.map(({ enginePath }) => enginePath)).toEqual([
      '/rerank',
      '/score',
      '/classify',
      '/tokenize',
      '/detokenize',
      '/pooling',
    ]);
    for (const endpoint of ENDPOINTS) expect(endpoint.path).toMatch(new RegExp(`^(/v1)?${endpoint.enginePath}$`));
  });

  it('asks for usage only where engines know stream_options', () => {
    const injected = ENDPOINTS.filter(({ injectUsage }) => injectUsage);
    expect(injected.map(({ path }) => path)).toEqual(['/v1/chat/completions', '/v1/completions']);
  });
});
