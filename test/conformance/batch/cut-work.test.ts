/** Requests for work from an agent that loses its connection. */
import OpenAI, { toFile } from 'openai';
import { afterAll, expect, it } from 'vitest';
import { startAgent } from '../../support/agent.ts';
import { startEngine } from '../../support/engine.ts';
import { Gateway } from '../../support/gateway.ts';
import { promise } from '../../support/patience.ts';
import { atEnd, endAll, eventually } from '../../support/processes.ts';
import { chatBody, MODEL } from '../../support/test-cluster.ts';
import { Path } from '../../support/tunnel/path.ts';
import { wiretap } from '../../support/wiretap.ts';

afterAll(endAll);

const CUTS = 3;
/** A lease that no node works on ends after 60 s. */
const BEFORE_LEASE_ENDS_MS = 30_000;

it('lines are not handed to a request for work whose connection was cut: the agent’s next one gets them', async () => {
  const gateway = await Gateway.start();
  const [apiKey, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  const tap = await wiretap(gateway.url);
  const path = await Path.open(new URL(tap.url));
  atEnd(() => path.close());
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  await startAgent({ gateways: [path.url.origin], token, engineUrl: engine.url });
  await gateway.serving(1);
  const askedTimes = (times: number) =>
    eventually(`request ${times} for work`, 30_000, () =>
      tap.requests('POST /agent/batch/lease ').length >= times ? true : undefined,
    );
  for (let cuts = 0; cuts < CUTS; cuts++) {
    await askedTimes(cuts + 1);
    path.cut();
  }
  await askedTimes(CUTS + 1);

  const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey, maxRetries: 0 });
  const endpoint = '/v1/chat/completions';
  const line = { custom_id: 'a', method: 'POST', url: endpoint, body: chatBody({ tokens: 1 }) };
  const file = await client.files.create({
    file: await toFile(Buffer.from(JSON.stringify(line)), 'in.jsonl'),
    purpose: 'batch',
  });
  const madeAt = Date.now();
  await client.batches.create({ input_file_id: file.id, endpoint, completion_window: '24h' });
  const { arrivedAt } = await engine.when(({ url }) => url === endpoint, 60_000, 'the line');
  expect(arrivedAt - madeAt).toBeLessThan(promise(BEFORE_LEASE_ENDS_MS));
});
