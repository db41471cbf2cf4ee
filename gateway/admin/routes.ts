/** REST for operators, to be mounted at `/admin`. Errors are thrown: the app that mounts this writes the envelope. */
import { Hono } from 'hono';
import { ApiError, methodNotAllowed } from '../../shared/openai/errors.ts';
import { authenticateOperator } from '../accounts/authenticate.ts';
import type { Env } from '../env.ts';
import { joinTokenRoutes } from './join-tokens.ts';
import { keyRoutes } from './keys.ts';
import { modelRoutes } from './models.ts';

export const adminRoutes = new Hono<{ Bindings: Env }>();

adminRoutes.use('*', async (c, next) => {
  await authenticateOperator(c.env, c.req.raw, Date.now());
  await next();
});

adminRoutes.route('/keys', keyRoutes);
adminRoutes.route('/join-tokens', joinTokenRoutes);
adminRoutes.route('/models', modelRoutes);

/** What is served where: any other method on these paths is 405 and says which would do. */
const ALLOWED: ReadonlyArray<[path: string, methods: string[]]> = [
  ['/keys', ['GET', 'POST']],
  ['/keys/:id', ['GET', 'DELETE']],
  ['/join-tokens', ['GET', 'POST']],
  ['/join-tokens/:id', ['GET', 'DELETE']],
  ['/models', ['GET']],
  ['/models/:id{.+}', ['GET', 'PUT', 'DELETE']],
];

for (const [path, methods] of ALLOWED) {
  adminRoutes.all(path, (c) => {
    throw methodNotAllowed(c.req.method, c.req.path, methods);
  });
}

adminRoutes.all('*', (c) => {
  throw new ApiError('not_found', `There is nothing at ${c.req.path.slice(0, 200)}.`);
});
