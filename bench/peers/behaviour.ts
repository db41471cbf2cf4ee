/**
 * What a speed figure does not show: whether the engine's request is cancelled when its client disconnects, and what a
 * client gets if the engine dies.
 */
import type { Engine, EngineRequest } from '../../test/support/engine.ts';
import { dial } from '../../test/support/raw.ts';
import { PATH } from '../bench-cluster.ts';
import { post, type Target } from '../client.ts';
import { MODEL } from './peer.ts';

/** A peer that keeps the engine's request for this long after the client disconnected counts as never cancelling it. */
const LET_GO_MS = 10_000;
/**
 * The client of a non-streaming request disconnects after this time. Through no peer can the response have ended by
 * then.
 */
const UNARY_LEAVES_MS = 700;
const SOME_TOKENS = 5;
const SLOW = { tokens: 2_000, tokensPerSecond: 20 };

export interface Behaviour {
  /** Milliseconds from the client's FIN until the engine's request ends; undefined: it continued for 10 s. */
  leavesStream: number | undefined;
  leavesUnary: number | undefined;
  /**
   * A stream whose engine dies in the middle. `told`: an in-band error without the end of a complete stream. `broken`:
   * the transfer breaks off. `whole`: it ends as if nothing were missing.
   */
  engineDies: 'told' | 'broken' | 'whole';
}

function bodyOf(stream: boolean): object {
  return { model: MODEL, messages: [{ role: 'user', content: 'Say something.' }], stream };
}

async function begun(engine: Engine, target: Target, stream: boolean) {
  const before = engine.requests.at(-1)?.id ?? 0;
  const socket = await dial(target.url);
  let text = '';
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  socket
    .on('error', () => undefined)
    .on('data', (piece) => {
      text += piece.toString('latin1');
    });
  socket.write(post(target, PATH, bodyOf(stream)));
  const request = await engine.when(({ id }) => id > before, 5_000, 'the request');
  return { socket, request, closed, seen: () => text };
}

async function until(what: string, reached: () => boolean): Promise<void> {
  for (const deadline = Date.now() + LET_GO_MS; !reached(); ) {
    if (Date.now() > deadline) throw new Error(`${what}: not within ${LET_GO_MS} ms`);
    await new Promise((resolve) => setTimeout(resolve, 3));
  }
}

async function leave(engine: Engine, target: Target, stream: boolean): Promise<number | undefined> {
  const { socket, request, seen } = await begun(engine, target, stream);
  const reached = stream
    ? () => (seen().match(/data: /g) ?? []).length >= SOME_TOKENS
    : () => Date.now() - request.arrivedAt > UNARY_LEAVES_MS;
  await until('an answer begins', reached);
  const leftAt = Date.now();
  socket.end();
  const over = ({ id, abortedAt }: EngineRequest) => id === request.id && abortedAt !== undefined;
  const aborted = await engine.when(over, LET_GO_MS, 'its end').catch(() => undefined);
  socket.destroy();
  return aborted?.abortedAt === undefined ? undefined : aborted.abortedAt - leftAt;
}

async function engineDies(engine: Engine, target: Target): Promise<Behaviour['engineDies']> {
  const { socket, closed, seen } = await begun(engine, target, true);
  await until('an answer begins', () => (seen().match(/data: /g) ?? []).length >= SOME_TOKENS);
  engine.hangUp();
  const whole = () => seen().endsWith('0\r\n\r\n');
  await Promise.race([closed, until('its end', whole)]);
  socket.destroy();
  if (/"error"\s*:/.test(seen()) && !seen().includes('[DONE]')) return 'told';
  return whole() ? 'whole' : 'broken';
}

/** Measures `target`. No other client may use `engine` meanwhile. */
export async function behaviourOf(engine: Engine, target: Target): Promise<Behaviour> {
  engine.control(SLOW);
  return {
    leavesStream: await leave(engine, target, true),
    leavesUnary: await leave(engine, target, false),
    engineDies: await engineDies(engine, target),
  };
}
