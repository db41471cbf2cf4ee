/** The most that a node can charge for one attempt with any report. */
import { expect, it } from 'vitest';
import { clampToBound, tokenBound, UNSEEN_TOKENS_MAX } from '../../../shared/attempts/token-bound.ts';
import type { Endpoint } from '../../../shared/openai/endpoints.ts';
import { NO_USAGE, type ReportedUsage } from '../../../shared/wire/reported-usage.ts';

const CHAT = { path: '/v1/chat/completions' };
const LIST = { path: '/v1/completions' };
const body = (bytes: number) => ({ kind: 'kept' as const, bytes: new Uint8Array(bytes) });
/** Engines differ in whether they count the tokens that end a response. */
const STOP = 16;

it('a prompt has at most a token for each byte and what engines add, and no more than the model takes', () => {
  expect(tokenBound({ body: body(100), endpoint: CHAT }, undefined).prompt).toBe(100 + UNSEEN_TOKENS_MAX);
  expect(tokenBound({ body: body(1_000_000), endpoint: CHAT }, 8_192).prompt).toBe(8_192);
});

it('an answer has at most what the request allows, times its choices and prompts', () => {
  const of = (sampling: object, endpoint = CHAT, bytes = 2) =>
    tokenBound({ body: body(bytes), endpoint, sampling }, 8_192).completion;
  expect(of({ max_tokens: 10 })).toBe(10 + STOP);
  expect(of({ max_tokens: 10, n: 3 })).toBe(3 * (10 + STOP));
  expect(of({ max_tokens: 10, n: -3 })).toBe(10 + STOP);
  expect(of({ max_tokens: 10, n: 1e9 })).toBe(1_024 * (10 + STOP));
  expect(of({ max_tokens: 10 }, LIST, 400)).toBe(100 * (10 + STOP));
  for (const without of [{}, { max_tokens: 0 }, { max_tokens: 1e9 }]) expect(of(without)).toBe(8_192 + STOP);
});

it('a node that says its contexts are endless charges no endless answer', () => {
  const { completion } = tokenBound({ body: body(2), endpoint: CHAT }, Number.MAX_SAFE_INTEGER);
  expect(completion).toBe(1_048_576 + STOP);
});

it('a report above the bound, or above what came of the answer, is cut and told; details never exceed their sum', () => {
  const bound = { prompt: 100, completion: 50_000 };
  const said = (prompt: number, completion: number) => ({
    ...NO_USAGE,
    prompt,
    completion,
    cached: prompt,
    reasoning: completion,
  });
  expect(clampToBound(said(100, 50_000), bound, 50_000, undefined)).toEqual({ usage: said(100, 50_000), over: false });
  expect(clampToBound(said(1e15, 7), bound, undefined, undefined)).toEqual({ usage: said(100, 7), over: true });
  expect(clampToBound(said(1, 1e15), bound, undefined, undefined)).toEqual({ usage: said(1, 50_000), over: true });
  expect(clampToBound(said(1, 60_000), bound, 1e6, undefined)).toEqual({ usage: said(1, 50_000), over: true });
  expect(clampToBound(said(1, 1e15), bound, 10, undefined)).toEqual({
    usage: said(1, 10 + UNSEEN_TOKENS_MAX),
    over: true,
  });
});

it('a node charges no more audio than the bytes of request and response can hold, and no more images than came', () => {
  const bound = { prompt: 1_000, completion: 10 };
  const audio = (audioMs: number) => ({ ...NO_USAGE, audioMs });
  const images = (images: number) => ({ ...NO_USAGE, images });
  for (const media of ['uploaded_audio', 'speech'] as const) {
    expect(clampToBound(audio(8_000), bound, 100, media)).toEqual({ usage: audio(8_000), over: false });
    expect(clampToBound(audio(1e12), bound, 100, media)).toEqual({ usage: audio(8_000), over: true });
    expect(clampToBound(audio(1e12), bound, 10_000, media)).toEqual({ usage: audio(80_000), over: true });
    // After a restart of the caller, the bytes of the response are unknown.
    expect(clampToBound(audio(1e12), bound, undefined, media)).toEqual({ usage: audio(86_400_000), over: true });
  }
  expect(clampToBound(images(2), bound, 100, 'images')).toEqual({ usage: images(2), over: false });
  expect(clampToBound(images(1e12), bound, 100, 'images')).toEqual({ usage: images(13), over: true });
  expect(clampToBound(images(1e12), bound, 10_000, 'images')).toEqual({ usage: images(1_024), over: true });
  expect(clampToBound(images(1e12), bound, undefined, 'images')).toEqual({ usage: images(1_024), over: true });
});

it('a node charges only the media of the endpoint that was called', () => {
  const bound = { prompt: 1_000, completion: 10 };
  const audio = { ...NO_USAGE, audioMs: 8_000 };
  const images = { ...NO_USAGE, images: 1_024 };
  const dropped = (usage: ReportedUsage, media: Endpoint['media']) => {
    const cut = clampToBound(usage, bound, undefined, media);
    expect(cut).toStrictEqual({ usage: NO_USAGE, over: true });
  };
  dropped(audio, undefined);
  dropped(images, undefined);
  dropped(audio, 'images');
  dropped(images, 'speech');
  dropped(images, 'uploaded_audio');
});
