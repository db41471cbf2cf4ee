/** Reads all pages of `GET /admin/nodes`. */
import * as z from 'zod';
import { type ApiTarget, askGateway } from './api-client.ts';

/** Schemas of the members of a node that every command reads. */
export const NODE_FIELDS = {
  session: z.string(),
  state: z.string(),
  suspected: z.boolean(),
  provider: z.string(),
  cluster: z.string(),
};

/** @throws ClientError; ZodError if the response is malformed */
export async function* readNodes<Node extends { session: string }>(
  target: ApiTarget,
  query: URLSearchParams,
  schema: z.ZodType<Node>,
): AsyncGenerator<Node> {
  const pageSchema = z.object({ data: z.array(schema), has_more: z.boolean() });
  for (let more = true; more; ) {
    const page = pageSchema.parse(await askGateway(target, 'GET', `?${query}`));
    yield* page.data;
    const last = page.data.at(-1);
    more = page.has_more && last !== undefined;
    if (last !== undefined) query.set('after', last.session);
  }
}
