import { expect, test } from 'vitest';
import type { AgentSocket } from '../../../gateway/tunnel/agent-socket.ts';
import { ControlFrames } from '../../../gateway/tunnel/control-frames.ts';
import type { Frame } from '../../../shared/wire/frames.ts';

function agent() {
  const frames: Frame[] = [];
  const link = { put: (frame: Frame) => frames.push(frame) };
  const socket = { link, confirmed: () => false } as unknown as AgentSocket;
  return { socket, frames };
}

const controlFrames = () => new ControlFrames({ session: 'session' } as ConstructorParameters<typeof ControlFrames>[0]);

test('an agent that is asked whether it is there answers, or is silent', async () => {
  const [said, { socket, frames }] = [controlFrames(), agent()];
  const answered = said.probe(socket);
  expect(frames).toEqual([{ type: 'probe', nonce: 1, session: 'session' }]);
  said.receive(socket, { type: 'probed', nonce: 1, verdict: 'alive' });
  expect(await answered).toBe('alive');
  expect(await said.probe(socket)).toBe('silent');
});

test('of an agent whose socket is lost meanwhile nothing is known', async () => {
  const [said, { socket }] = [controlFrames(), agent()];
  const asked = [said.probe(socket), said.deploy(socket, new Uint8Array())];
  said.abandon();
  expect(await Promise.all(asked)).toEqual(['unknown', null]);
});
