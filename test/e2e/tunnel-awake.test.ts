/** Where objects stay, as in plain workerd, an object holds its sockets awake and answers their heartbeats itself. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { PING_TEXT, PONG_TEXT } from '../../shared/wire/heartbeat.ts';
import { chatBody } from '../support/house.ts';
import { endAll, eventually } from '../support/processes.ts';
import { HandAgent } from '../support/tunnel/hand-agent.ts';
import { openWorkshop, type Workshop } from '../support/tunnel/workshop.ts';

let shop: Workshop;
beforeAll(async () => {
  shop = await openWorkshop({ OBJECTS_STAY: 'on' });
});
afterAll(endAll);

function pongsOf(agent: HandAgent): { count: number } {
  const pongs = { count: 0 };
  agent.socket.on('message', (data: Buffer, binary: boolean) => {
    if (!binary && String(data) === PONG_TEXT) pongs.count++;
  });
  return pongs;
}

it('a heartbeat is answered, also before the agent has said who it is', async () => {
  const agent = new HandAgent(shop);
  const pongs = pongsOf(agent);
  await agent.when('challenge');
  agent.sendRaw(PING_TEXT);
  await eventually('a pong', 5_000, () => (pongs.count === 1 ? true : undefined));
});

it('a flood of heartbeats is answered now and then, and what comes behind it is read', async () => {
  const agent = await new HandAgent(shop).join(['awake/flood']);
  const pongs = pongsOf(agent);
  for (let n = 0; n < 20_000; n++) agent.sendRaw(PING_TEXT);
  const asked = shop.ask('/v1/chat/completions', chatBody({}, { model: 'awake/flood' }));
  const { stream } = await agent.opening();
  agent.answer(stream);
  expect((await asked).status).toBe(200);
  expect(pongs.count).toBeGreaterThan(0);
  expect(pongs.count).toBeLessThan(200);
});

it.each([
  ['text', 'otela:pang'],
  ['bytes that are no frame', Uint8Array.of(0x60)],
])('%s costs the agent its socket: 4002', async (_, wrong) => {
  const agent = await new HandAgent(shop).join(['awake/wrong']);
  agent.sendRaw(wrong);
  agent.sendRaw(PING_TEXT); // comes to a socket that is closed on the other side
  expect((await agent.closed).code).toBe(4002);
});

it('an agent whose socket breaks without a word is served by its next one', async () => {
  const first = await new HandAgent(shop).join(['awake/again']);
  first.socket.terminate();
  const agent = await new HandAgent(shop, first.identity).join(['awake/again'], 2);
  const asked = shop.ask('/v1/chat/completions', chatBody({}, { model: 'awake/again' }));
  agent.answer((await agent.opening()).stream);
  expect((await asked).status).toBe(200);
});

it('none of it was an error inside the gateway', () => {
  expect(shop.logs()).toEqual([]);
});
