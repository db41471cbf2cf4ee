/** An autoscaler as its operators and users see it. */
import { z } from 'zod';
import type { GatewayClient } from '../support/gateway-client.ts';
import { eventually } from '../support/processes.ts';
import { chatBody } from '../support/test-cluster.ts';

const shown = z.object({
  data: z.array(
    z.object({
      config_revision: z.string(),
      models: z.array(
        z.object({ id: z.string(), state: z.string(), reason: z.string().optional(), ready: z.number() }),
      ),
      jobs: z.array(
        z.object({
          id: z.string(),
          model: z.string(),
          state: z.string(),
          reason: z.string().optional(),
          log_tail: z.string().optional(),
        }),
      ),
      clusters: z.array(z.object({ reachable: z.boolean(), reason: z.string().optional() })),
      decisions: z.array(z.object({ text: z.string(), model: z.string().optional() })),
    }),
  ),
});
export type Shown = z.infer<typeof shown>['data'][number];

/** The data of the autoscaler on an operator's dashboard. */
export async function pageOf(gateway: GatewayClient): Promise<Shown | undefined> {
  return shown.parse(await gateway.admin('GET', 'factory')).data[0];
}

export function showsAt(
  gateway: GatewayClient,
  what: string,
  withinMs: number,
  met: (factory: Shown) => boolean,
): Promise<Shown> {
  return eventually(what, withinMs, async () => {
    const now = await pageOf(gateway);
    return now !== undefined && met(now) ? now : undefined;
  });
}

/** Milliseconds from the request until the first token, and the complete body. */
export async function streamed(url: string, key: string, waitS: string): Promise<{ firstMs: number; body: string }> {
  const asked = performance.now();
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-otela-wait': waitS },
    body: JSON.stringify(chatBody({ tokens: 2 }, { stream: true })),
  });
  if (response.body === null || response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  let [body, firstMs] = ['', Number.NaN];
  for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
    body += piece;
    if (Number.isNaN(firstMs) && body.includes('data: {')) firstMs = performance.now() - asked;
  }
  return { firstMs, body };
}
