/** The cases for servers of audio. Each response is compared with the response of the engine asked directly. */
import assert from 'node:assert/strict';
import { z } from 'zod';
import { wav } from '../../shared/openai/audio/audio-files.ts';
import { eventually } from '../../support/processes.ts';
import { newKey, type Target, targets } from '../place.ts';
import { type Case, LOST_MS, ok, refusal } from './cases.ts';
import { type EnginePlace, killEngine, restartEngine } from './engine-place.ts';

const SETTLED_MS = 10_000;
const SECONDS = 3;
/** The engine computes for longer than the test needs to kill it. */
const LONG_SECONDS = 600;

async function transcribe({ url, key }: Target, model: string, file: Uint8Array<ArrayBuffer>, more: object = {}) {
  const form = new FormData();
  // No second try with another temperature: the text stays the same.
  const fields = { model, temperature_inc: '0', ...more };
  for (const [name, value] of Object.entries(fields)) form.append(name, String(value));
  form.append('file', new Blob([file], { type: 'audio/wav' }), 'lake.wav');
  const headers: Record<string, string> = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const response = await fetch(`${url}/v1/audio/transcriptions`, { method: 'POST', headers, body: form });
  return { status: response.status, type: response.headers.get('content-type'), text: await response.text() };
}

const audio = (seconds: number) => new Uint8Array(wav(seconds));

const same = (name: string, file: Uint8Array<ArrayBuffer>, more: object, isRefused = false): Case => ({
  name,
  run: async (place) => {
    const { key } = await newKey(place.gateway);
    const { direct, through } = targets(place, key);
    const expected = await transcribe(direct, place.model, file, more);
    const got = await transcribe(through, place.model, file, more);
    assert.deepEqual(got, expected);
    if (got.status >= 400 !== isRefused) return refusal(got);
    return ok(`${got.status}, ${got.text.length} bytes, as asked directly: ${got.text.slice(0, 100)}`);
  },
});

const totalsSchema = z.object({ data: z.array(z.looseObject({ requests: z.number(), audio_seconds: z.number() })) });

/** The agent measures the file of the first request. The second response has the engine's own duration. */
async function seconds(place: EnginePlace) {
  const { id, key } = await newKey(place.gateway);
  const { through } = targets(place, key);
  for (const [n, response_format] of ['json', 'verbose_json'].entries()) {
    const { status, text } = await transcribe(through, place.model, audio(SECONDS), { response_format });
    assert.equal(status, 200, text.slice(0, 300));
    const used = await eventually('the seconds on record', SETTLED_MS, async () => {
      const { data } = totalsSchema.parse(await place.gateway.admin('GET', `usage?group_by=key&key=${id}`));
      return data[0]?.requests === n + 1 ? data[0] : undefined;
    });
    assert.equal(used.audio_seconds, SECONDS * (n + 1));
  }
  return ok(`${SECONDS} s by the agent and ${SECONDS} s by the engine`);
}

async function stopped(place: EnginePlace) {
  const { key } = await newKey(place.gateway);
  const { through } = targets(place, key);
  const asked = transcribe(through, place.model, audio(LONG_SECONDS));
  await eventually('the request at the engine', SETTLED_MS, async () =>
    /^otela_agent_engine_requests\{state="running"\} 1$/m.test(await place.agentMetrics()) ? true : undefined,
  );
  const killedAt = performance.now();
  await killEngine(place);
  const { status, text } = await asked;
  const ms = performance.now() - killedAt;
  assert.ok([502, 503].includes(status), `${status} ${text.slice(0, 300)}`);
  assert.ok(JSON.parse(text).error.message.length > 0);
  assert.ok(ms < LOST_MS, `told after ${ms} ms`);
  return ok(`${status} after ${ms.toFixed(0)} ms`);
}

async function restarted(place: EnginePlace) {
  const { key } = await newKey(place.gateway);
  const { through } = targets(place, key);
  if (place.process.running) await killEngine(place);
  await restartEngine(place);
  await eventually('an answer through the same agent', LOST_MS, async () => {
    const { status, text } = await transcribe(through, place.model, audio(1));
    if (status !== 200) throw new Error(`${status} ${text.slice(0, 300)}`);
    return true;
  });
  return ok('through the same agent');
}

/** In this order, because the last ones end the engine. */
export const AUDIO_CASES: readonly Case[] = [
  same('a transcription', audio(SECONDS), {}),
  same('a transcription with its segments', audio(SECONDS), { response_format: 'verbose_json' }),
  same('a transcription as text', audio(SECONDS), { response_format: 'text' }),
  same('an upload that is not audio', new Uint8Array(1_000), {}, true),
  { name: 'seconds of audio on record', run: seconds },
  { name: 'the engine is killed during a transcription', run: stopped },
  { name: 'the engine starts again', run: restarted },
];
