import { describe, expect, it } from 'vitest';
import {
  EngineAnswer,
  type EngineAnswerEnd,
  failedOutcome,
  NORMAL_END,
} from '../../../agent/attempts/engine-answer.ts';
import { type Endpoint, endpointById } from '../../../shared/openai/endpoints.ts';

const CHAT = endpointById(1) as Endpoint;
const CLOSED: EngineAnswerEnd = { kind: 'reset', code: 'engine_closed', message: 'other side closed' };
const LEFT: EngineAnswerEnd = { kind: 'reset', code: 'cancelled', message: '' };

function answerOf(type: string, parts: string[], sized = false): EngineAnswer {
  const head = { status: 200, headers: [['content-type', type]] as const, sized, dropUsage: false, promptBytes: 8 };
  const answer = new EngineAnswer(CHAT, { ...head, headers: [...head.headers] });
  for (const part of parts) answer.push(Buffer.from(part), 1_000);
  return answer;
}

const WORD = 'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n';
const DONE = 'data: [DONE]\n\n';

describe('a stream', () => {
  it('that said its last word is whole, though its connection broke', () => {
    const { ending, usage } = answerOf('text/event-stream', [WORD, DONE]).end(CLOSED, false);
    expect(ending).toEqual(NORMAL_END);
    expect(usage).toMatchObject({ complete: true, aborted: false });
  });

  it('that cannot be believed, or whose client left, ends as it was told', () => {
    expect(answerOf('text/event-stream', [WORD, DONE]).end(CLOSED, true).ending).toEqual(CLOSED);
    const { ending, usage } = answerOf('text/event-stream', [WORD, DONE]).end(LEFT, false);
    expect(ending).toEqual(LEFT);
    expect(usage).toMatchObject({ complete: false, aborted: true });
  });

  it('lingers when nothing follows its last word', () => {
    expect(answerOf('text/event-stream', [WORD]).lingers(60_000)).toBe(false);
    const answer = answerOf('text/event-stream', [WORD, DONE]);
    expect([answer.lingers(2_999), answer.lingers(3_000)]).toEqual([false, true]);
  });
});

it('that ends in the middle of its JSON is cut, unless its length was told', () => {
  const half = ['{"choices":[{"message":'];
  expect(answerOf('application/json', half).end(NORMAL_END, false).ending).toMatchObject({ code: 'engine_closed' });
  expect(answerOf('application/json', half, true).end(NORMAL_END, false).ending).toEqual(NORMAL_END);
});

it('that the engine gave up is no whole answer, though its length is right', () => {
  const given =
    '{"choices":[{"index":0,"message":{"content":""},"finish_reason":"abort"}],"usage":{"prompt_tokens":1,"completion_tokens":0}}';
  const { ending, usage } = answerOf('application/json', [given], true).end(NORMAL_END, false);
  expect(ending).toMatchObject({ kind: 'reset', code: 'engine_closed' });
  expect(usage).toMatchObject({ complete: false });
});

it('may have cost something where the engine was asked and gave no head', () => {
  expect(failedOutcome(LEFT).usage).toMatchObject({ estimated: true, aborted: true });
  expect(failedOutcome({ kind: 'reset', code: 'engine_unreachable', message: '' }).usage).toBeUndefined();
});
