/** `/v1/otela/secrets`: secrets that the owner's functions get as environment variables. No response has a value. */
import { type Context, Hono } from 'hono';
import * as z from 'zod';
import { SECRET_MAX_CHARS, SECRET_NAME, SECRET_NAME_RULE } from '../../shared/batch/function-secret.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { requireWritable } from '../accounts/database.ts';
import type { Env } from '../env.ts';
import { fileCaller } from '../files/file-owner.ts';
import { readParsedBody } from '../http/parse-body.ts';
import { deleteSecret, secretNames, storeSecret } from './function-secrets.ts';

type Ctx = Context<{ Bindings: Env }>;

/** Of one line of text: Node refuses a variable with a zero byte, and tokens have no line ends. */
export const secretBody = z.object({
  value: z
    .string()
    .min(1)
    .max(SECRET_MAX_CHARS)
    .regex(/^[^\0\r\n]+$/, { error: 'must be one line of text' }),
});

export const secretRoutes = new Hono<{ Bindings: Env }>();

secretRoutes.get('/', async (c) => {
  const { owner } = await fileCaller(c);
  const data = (await secretNames(c.env, owner)).map(({ name, createdAt }) => shown(name, createdAt));
  return c.json({ object: 'list', data });
});

secretRoutes.put('/:name', async (c) => {
  const { owner, account } = await fileCaller(c);
  requireWritable();
  const name = nameOf(c);
  const { value } = await readParsedBody(c, secretBody);
  const now = Date.now();
  await storeSecret(c.env, { owner, name, value }, account.keyId, now);
  return c.json(shown(name, now));
});

secretRoutes.delete('/:name', async (c) => {
  const { owner } = await fileCaller(c);
  requireWritable();
  const name = nameOf(c);
  if (!(await deleteSecret(c.env, owner, name)))
    throw new ApiError('not_found', `There is no secret '${name}'.`, { param: 'name' });
  return c.json({ object: 'otela.secret', name, deleted: true });
});

function shown(name: string, createdAt: number) {
  return { object: 'otela.secret', name, created_at: Math.floor(createdAt / 1_000) };
}

/** @throws ApiError 400 */
function nameOf(c: Ctx): string {
  const name = c.req.param('name') ?? '';
  if (!SECRET_NAME.test(name))
    throw new ApiError('invalid_request', `The name ${SECRET_NAME_RULE}.`, { param: 'name' });
  return name;
}
